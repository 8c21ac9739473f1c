"""Which entries of a Jacobian can be nonzero, and which of its rows can therefore be swept together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions

Way = Literal["pull", "push"]
NOBODY = -1


@dataclass(frozen=True, slots=True, eq=False)
class Compression:
    """Lines (rows for a pull, columns for a push) that are swept together, and who owns each entry that comes back.

    `color[line]` is the pass a line travels in, NOBODY for a line that is all zero. `owner[pass, k]` is the one line of
    that pass with an entry at k; where it is NOBODY the sweep must return exactly zero, which is evidence for free.
    """

    way: Way
    shape: tuple[int, int]
    color: Positions
    owner: npt.NDArray[np.int64]

    @property
    def passes(self) -> int:
        return len(self.owner)

    @property
    def entries(self) -> int:
        """How many entries of the Jacobian may be nonzero."""
        return int((self.owner != NOBODY).sum())

    @property
    def flat(self) -> tuple[Positions, Positions]:
        """(from, to): the slot in the flattened passes, and the place in the flattened (m, n) Jacobian."""
        owner = self.owner.reshape(-1)
        slots = np.flatnonzero(owner != NOBODY)
        along = slots % self.owner.shape[1]
        rows, columns = (owner[slots], along) if self.way == "pull" else (along, owner[slots])
        return slots, rows * self.shape[1] + columns


def compress(
    rows: Positions, columns: Positions, color: Positions, shape: tuple[int, int], way: Way = "pull"
) -> Compression | None:
    """Entries and a coloring as a Compression; None where two lines of one color share an entry.

    >>> compress(np.array([0, 1]), np.array([0, 1]), np.array([0, 0]), (2, 2)).passes
    1
    """
    lines, along = (rows, columns) if way == "pull" else (columns, rows)
    width = shape[1] if way == "pull" else shape[0]
    passes = int(color.max(initial=-1)) + 1
    owner = np.full(passes * width, NOBODY, dtype=np.int64)
    spots = color[lines] * width + along
    owner[spots] = lines
    if np.any(owner[spots] != lines):
        return None
    return Compression(way, shape, color, owner.reshape(passes, width))
