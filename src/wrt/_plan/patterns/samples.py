"""A few rows of the Jacobian, looked at for where they are nonzero."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions, Shape


@dataclass(frozen=True, eq=False)
class Samples:
    """`support[s, c]`: whether row `rows[s]` is nonzero at column c."""

    rows: Positions
    support: npt.NDArray[np.bool_]

    @cached_property
    def spots(self) -> tuple[Positions, Positions]:
        """(sample, column) of every nonzero; what `nonzero` says takes ten times as long for a table as for a line."""
        sample, column = np.divmod(np.flatnonzero(self.support), self.support.shape[1])
        return sample, column

    @cached_property
    def counts(self) -> list[int]:
        """The nonzeros of each row; one by one is how NumPy counts fastest."""
        return [int(np.count_nonzero(row)) for row in self.support]

    @cached_property
    def alive(self) -> tuple[Positions, Positions, Positions]:
        """The rows that have nonzeros; and of every nonzero, which of those it is in, and its column."""
        sample, column = self.spots
        there = [count > 0 for count in self.counts]
        if all(there):
            return self.rows, sample, column
        return self.rows[there], (np.cumsum(there) - 1)[sample], column

    @property
    def density(self) -> float:
        """The share of nonzeros in a typical row that has any."""
        alive = sorted(filter(None, self.counts))
        return alive[len(alive) // 2] / self.support.shape[1] if alive else 0.0


@lru_cache(maxsize=64)
def spread_rows(shape: Shape, count: int) -> Positions:
    """Rows that lie far apart along every axis, independently of one another, and the two outermost ones.

    Along each axis the samples are one to a stratum, in a random order of its own (a Latin hypercube): a coincidence
    between two axes does not survive a dozen of them.
    """
    size = int(np.prod(shape))
    if size <= count:
        return np.arange(size)
    generator = np.random.default_rng(7)
    inner = count - 2
    coordinates = [
        np.minimum(((generator.permutation(inner) + generator.uniform(0.2, 0.8, inner)) / inner * n).astype(int), n - 1)
        for n in shape
    ]
    rows = np.ravel_multi_index(coordinates, shape) if shape else np.zeros(inner, int)
    spread = np.unique(np.concatenate([[0], rows, [size - 1]])).astype(np.int64)
    spread.setflags(write=False)
    return spread
