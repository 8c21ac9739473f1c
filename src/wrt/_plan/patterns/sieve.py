"""A pattern that no rule tells, found by sums of rows.

The rows of y are summed, with random weights, in classes of their numbers modulo p. Where the sum of a class is zero in
a column, none of its rows has an entry there. A few families of classes, each with a modulus of its own, leave each row
the columns that all of its classes touch: never fewer than it has entries in, and hardly more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions

SPREAD = 3  # classes for each entry of a column: fewer tell less, more take more passes
CHUNK = 2**26  # bits that are looked at together


def moduli(entries: float) -> Iterator[int]:
    """Primes, the smallest of which has enough classes for so many entries of a column."""
    candidate = max(5, math.ceil(SPREAD * entries))
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
        count, step = 0, max(1, CHUNK // max(1, self.columns))
        for start in range(0, self.rows, step):
            found.append(self._some(np.arange(start, min(start + step, self.rows))))
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
