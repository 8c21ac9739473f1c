"""Which indices of one axis of x a few sampled rows touch: a list of pairs, as short as the rows are sparse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions


@dataclass(frozen=True, slots=True, eq=False)
class Touched:
    """`sample[k]` touches `index[k]`: each pair once, in order. Every one of `samples` touches something."""

    sample: Positions
    index: Positions
    samples: int
    length: int

    @property
    def everything(self) -> bool:
        """Whether every sample touches the whole axis."""
        return len(self.index) == self.samples * self.length

    @property
    def counts(self) -> Positions:
        """How many indices each sample touches."""
        return np.bincount(self.sample)

    @property
    def alike(self) -> Positions | None:
        """The indices that all samples touch, where they all touch the same ones."""
        counts = self.counts
        if (counts != counts[0]).any():
            return None
        table = self.index.reshape(self.samples, -1)
        return table[0] if (table == table[0]).all() else None

    @property
    def centers(self) -> npt.NDArray[np.float64]:
        """The middle of what each sample touches."""
        return np.bincount(self.sample, self.index) / self.counts


def touched(sample: Positions, index: Positions, samples: int, length: int) -> Touched:
    """From pairs in any order, some of them perhaps more than once."""
    seen = np.zeros(samples * length, dtype=bool)
    seen[sample * length + index] = True
    found = np.divmod(np.flatnonzero(seen), length)
    return Touched(*found, samples, length)
