"""Lines that share no entry get one color: greedily, in several orders, keeping the best."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wrt._core.index import Positions
from wrt._core.pattern import NOBODY

MOST_CONFLICTS = 2**25  # pairs of lines that meet; beyond this, coloring takes longer than it can save


def color_rows(pattern: Any, *, below: int) -> Positions | None:
    """A color for each row, NOBODY for empty ones; None where there are not clearly fewer colors than `below`."""
    entries = np.bincount(pattern.indices, minlength=pattern.shape[1])
    if entries.max(initial=0) >= below or int((entries.astype(np.int64) ** 2).sum()) > MOST_CONFLICTS:
        return None
    meets = (pattern @ pattern.T).tocsr()
    counts = np.diff(meets.indptr)
    empty = np.diff(pattern.indptr) == 0
    orders: tuple[Callable[[], Positions], ...] = (
        lambda: np.argsort(-counts, kind="stable"),
        lambda: np.arange(len(counts)),
        lambda: _smallest_last(meets),
    )
    best: Positions | None = None
    for make in orders:
        order = make()
        found = _greedy(meets, order[~empty[order]], below if best is None else int(best.max()))
        best = best if found is None else found
        if best is not None and int(best.max()) < entries.max(initial=0):
            break  # as few as the fullest column needs
    return best


def _greedy(meets: Any, order: Positions, below: int) -> Positions | None:
    """The smallest color that no neighbor has, line after line; None once `below` colors are needed."""
    starts, neighbors = meets.indptr, meets.indices
    color = np.full(len(starts) - 1, NOBODY, dtype=np.int64)
    taken = np.zeros(below + 2, dtype=np.int64)  # one that is always free, and one for NOBODY to mark
    for turn, line in enumerate(order.tolist(), start=1):
        taken[color[neighbors[starts[line] : starts[line + 1]]]] = turn
        chosen = int(np.argmax(taken != turn))
        if chosen >= below:
            return None
        color[line] = chosen
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
