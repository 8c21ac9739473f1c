"""Lines that share no entry get one color: greedily, in several orders, keeping the best."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from wrt._core.index import Positions
from wrt._core.pattern import NOBODY

MOST_CONFLICTS = 2**25  # pairs of lines that meet; beyond this, listing them takes longer than it can save


def color_rows(pattern: Any, *, below: int) -> Positions | None:
    """A color for each row, NOBODY for empty ones; None where there are not clearly fewer colors than `below`."""
    entries = np.bincount(pattern.indices, minlength=pattern.shape[1]).astype(np.int64)
    fullest = int(entries.max(initial=0))
    if fullest >= below:
        return None
    orders: list[Callable[[], Positions]] = [
        lambda: np.argsort(-(pattern.astype(np.int64) @ entries), kind="stable"),  # those that meet most come first
        lambda: np.arange(pattern.shape[0]),
    ]
    if int((entries**2).sum()) <= MOST_CONFLICTS:
        orders.append(lambda: _smallest_last((pattern @ pattern.T).tocsr()))
    starts, columns = pattern.indptr.tolist(), pattern.indices.tolist()
    lines = [columns[start:stop] for start, stop in pairwise(starts)]
    best: Positions | None = None
    for make in orders:
        found = _greedy(lines, pattern.shape[1], make(), below if best is None else int(best.max()))
        best = best if found is None else found
        if best is not None and int(best.max()) < fullest:
            break  # as few as the fullest column needs
    return best


def _greedy(lines: list[list[int]], columns: int, order: Positions, below: int) -> Positions | None:
    """The smallest color that no line with an entry in the same column has; None once `below` colors are needed."""
    color = np.full(len(lines), NOBODY, dtype=np.int64)
    used = [0] * columns  # the colors of each column, as the bits of a number
    for number in order.tolist():
        line = lines[number]
        if not line:
            continue
        taken = 0
        for column in line:
            taken |= used[column]
        free = ~taken & (taken + 1)  # the lowest bit that is not set
        if free >> below:
            return None
        color[number] = free.bit_length() - 1
        for column in line:
            used[column] |= free
    return color


def _smallest_last(meets: Any) -> Positions:
    """Lines with few neighbors are colored last; what counts is neighbors that are still there. In rounds."""
    starts, neighbors = meets.indptr, meets.indices
    degree = np.diff(starts).astype(np.int64)
    left = np.ones(len(degree), dtype=bool)
    last: list[Positions] = []
    while left.any():
        gone = np.flatnonzero(left & (degree <= 1.1 * degree[left].min() + 1))
        left[gone] = False
        last.append(gone)
        met = np.concatenate([neighbors[starts[line] : starts[line + 1]] for line in gone.tolist()])
        degree = degree - np.bincount(met, minlength=len(degree))
    return np.concatenate(last[::-1]) if last else np.zeros(0, dtype=np.int64)
