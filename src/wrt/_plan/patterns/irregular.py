"""Irregular patterns: where they come from, and which of their lines share a pass.

`compose` multiplies what each operation says of its own elements. Where an operation does not tell, a `Sieve` finds the
pattern by sums of rows. `color_rows` gives lines that share no entry one color.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.flow import LocalMap, LocalMaps
from wrt._core.index import Positions
from wrt._core.pattern import NOBODY
from wrt._core.thresholds import MOST_PAIRS
from wrt._plan.thresholds import CLASSES_PER_ENTRY, COLORED_LINES, DENSE_SHARE

# ---------------------------------------------------------------- products of boolean matrices


def compose(local: LocalMaps, rows: Positions, columns: Positions, *, most: float = DENSE_SHARE) -> Any | None:
    """The (rows, columns) pattern as a boolean csr array; None where more than a share of `most` is filled.

    Where everything passes one tensor the product is begun anew, and the pieces are multiplied at the end: a graph
    convolution spreads to all edges and back, and is a matrix of nodes by nodes when seen as one piece.
    """
    from scipy.sparse import eye_array

    maps: dict[int, list[LocalMap]] = {}
    for one in local.maps:
        maps.setdefault(one.later, []).append(one)
    pieces: list[Any] = []
    waiting: dict[int, Any] = {0: eye_array(local.sizes[0], dtype=bool, format="csr")[rows]}
    end = len(local.sizes) - 1
    for tensor in range(end):
        reached = waiting.pop(tensor, None)
        if reached is None:
            continue
        if not waiting and tensor:
            pieces.append(reached)
            reached = eye_array(local.sizes[tensor], dtype=bool, format="csr")
        for one in maps.get(tensor, []):
            step = reached if one.pairs is None else reached @ _matrix(one, local)
            before = waiting.get(one.earlier)
            waiting[one.earlier] = step if before is None else before + step
    if end not in waiting:
        return None
    pieces.append(waiting[end])
    return _multiplied(pieces, columns, most)


def _matrix(one: LocalMap, local: LocalMaps) -> Any:
    from scipy.sparse import csr_array

    assert one.pairs is not None
    ones = np.ones(len(one.pairs[0]), dtype=bool)
    return csr_array((ones, one.pairs), shape=(local.sizes[one.later], local.sizes[one.earlier]))


def _multiplied(pieces: list[Any], columns: Positions, most: float) -> Any | None:
    found = pieces[0]
    for piece in pieces[1:]:
        found = found @ piece
        if found.nnz > most * found.shape[0] * found.shape[1]:
            return None
    if len(columns) < found.shape[1] or np.any(np.diff(columns) != 1):
        found = found[:, columns]
    found = found.tocsr()
    found.sum_duplicates()
    return None if found.nnz > most * found.shape[0] * found.shape[1] else found


# ---------------------------------------------------------------- sums of rows
#
# The rows of y are summed, with random weights, in classes of their numbers modulo p. Where the sum of a class is zero in
# a column, none of its rows has an entry there. A few families of classes, each with a modulus of its own, leave each row
# the columns that all of its classes touch: never fewer than it has entries in, and hardly more.


def moduli(entries: float) -> Iterator[int]:
    """Primes, the smallest of which has enough classes for so many entries of a column."""
    candidate = max(5, math.ceil(CLASSES_PER_ENTRY * entries))
    while True:
        if all(candidate % k for k in range(2, math.isqrt(candidate) + 1)):
            yield candidate
        candidate += 1


def enough(entries: float, below: float) -> list[int]:
    """Moduli that together are expected to leave less than this share of wrong columns."""
    chosen: list[int] = []
    left = 1.0
    for modulus in moduli(entries):
        chosen.append(modulus)
        left *= 1 - (1 - 1 / modulus) ** entries
        if left <= below:
            break
    return chosen


class Sieve:
    """What is left of each row's columns, family by family."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows = rows
        self.columns = columns
        self.left = 1.0
        """The share of wrong columns that no family has ruled out, if they rule out independently."""
        self._touched: list[npt.NDArray[np.uint8]] = []

    def add(self, touched: npt.NDArray[np.bool_]) -> None:
        """`touched[r, c]`: whether rows that are r modulo the number of classes are nonzero together in column c."""
        self._touched.append(np.packbits(touched, axis=1))
        self.left *= float(touched.mean())

    def pattern(self, most: float) -> Any | None:
        """What is left as a boolean csr array; None where that is more than a share of `most` of all entries."""
        from scipy.sparse import csr_array

        found: list[tuple[Positions, Positions]] = []
        count = 0
        for start in range(0, self.rows, COLORED_LINES):
            found.append(self._some(np.arange(start, min(start + COLORED_LINES, self.rows))))
            count += len(found[-1][0])
            if count > most * self.rows * self.columns:
                return None
        rows, columns = (np.concatenate(each) for each in zip(*found, strict=True))
        return csr_array((np.ones(count, dtype=bool), (rows, columns)), shape=(self.rows, self.columns))

    def _some(self, rows: Positions) -> tuple[Positions, Positions]:
        """(rows, columns) of what is left of these rows."""
        alive = np.full((len(rows), self._touched[0].shape[1]), 255, dtype=np.uint8)
        for touched in self._touched:
            alive &= touched[rows % len(touched)]
        line, place = np.nonzero(alive)  # eight columns in one number, most of them zero
        which, bit = np.nonzero(np.unpackbits(alive[line, place][:, None], axis=1))
        return rows[line[which]], place[which] * 8 + bit


# ---------------------------------------------------------------- colors


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
    if int((entries**2).sum()) <= MOST_PAIRS:
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
