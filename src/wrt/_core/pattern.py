"""Which entries of a Jacobian can be nonzero, and which of its rows can therefore be swept together.

Positions are kept as *tables*: small arrays that broadcast against one another and whose sum is meant. A batch of 512
blocks of 64 x 64 has two million entries, and three tables of a few hundred numbers say where each of them belongs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions, Shape, row_major

Way = Literal["pull", "push"]
NOBODY = -1

Index = npt.NDArray[Any]
Tables = tuple[Positions, ...]
"""Arrays that broadcast to one shape; their sum is meant."""
Masks = tuple[npt.NDArray[np.bool_], ...]
"""The same for booleans; all of them must hold."""


@dataclass(frozen=True, eq=False)
class Compression:
    """Lines (rows for a pull, columns for a push) that are swept together, and who owns each entry that comes back.

    `colors`, over the axes of the lines, is the pass a line travels in (NOBODY for a line that is all zero). `owners`
    is the one line of a pass with an entry at each place that comes back; it goes over `box`: an axis of passes for
    each axis of the lines, then the axes of what a pass returns. Where not all of `owned` hold nobody has an entry,
    and the sweep must return exactly zero: evidence for free. The owner named there is a line of the same pass, so that
    every slot of the passes has a place of its own in the Jacobian, and the zeros may be written like anything else.
    """

    way: Way
    shape: tuple[int, int]
    passes: int
    lines: Shape
    box: Shape
    colors: Tables
    owners: Tables
    owned: Masks = ()

    @property
    def count(self) -> int:
        """How many lines there are."""
        return prod(self.lines)

    @property
    def width(self) -> int:
        """How many numbers one pass returns."""
        return self.shape[1] if self.way == "pull" else self.shape[0]

    @property
    def slots(self) -> int:
        """How many numbers all passes return together."""
        return prod(self.box)

    @cached_property
    def color(self) -> Positions:
        """The pass of every line, NOBODY for one that is all zero."""
        return table_sum(self.colors, self.lines)

    @property
    def owner(self) -> Positions:
        """(passes, width): the line behind each slot, NOBODY where there is none."""
        found = table_sum(self.owners, self.box)
        found[self.free] = NOBODY
        return found.reshape(self.passes, self.width)

    @property
    def free(self) -> Positions:
        """Slots of the flattened passes that nobody owns."""
        if not self.owned:
            return np.zeros(0, dtype=np.int64)
        held = self.owned[0]
        for mask in self.owned[1:]:
            held = held & mask
        return np.flatnonzero(~(held if held.shape == self.box else np.broadcast_to(held, self.box)))

    @property
    def along(self) -> Positions:
        """Where each slot stands in what a pass returns, as a table over the box."""
        axes = len(self.lines)
        return np.arange(self.width).reshape((1,) * axes + self.box[axes:])

    @property
    def places(self) -> Tables:
        """The place of every slot in the flattened (m, n) Jacobian."""
        n = self.shape[1]
        if self.way == "pull":
            return (*(table * n for table in self.owners), self.along)
        return (*self.owners, self.along * n)

    @cached_property
    def strides(self) -> tuple[int, Shape] | None:
        """Where the first slot stands and how far one step along each axis of the box leads, in the flattened Jacobian.

        None where steps along an axis differ or lead back: such slots have to be placed one by one.
        """
        of_line, of_spot = (self.shape[1], 1) if self.way == "pull" else (1, self.shape[1])
        read = self.box[len(self.lines) :]
        along = [step * of_spot if length > 1 else 0 for step, length in zip(row_major(read), read, strict=True)]
        start, steps = 0, [0] * len(self.lines) + along
        for owner in self.owners:
            start += int(owner.flat[0]) * of_line
            for axis in range(owner.ndim):
                apart = _apart(owner, axis)
                if apart is None:
                    return None
                steps[axis] += apart * of_line
        return None if min(steps, default=0) < 0 else (start, tuple(steps))

    @property
    def entries(self) -> int:
        """How many entries of the Jacobian may be nonzero."""
        return prod(self.box) - len(self.free)

    @cached_property
    def flat(self) -> tuple[Positions, Positions]:
        """(from, to): the owned slots of the flattened passes, and their places in the flattened Jacobian."""
        places = table_sum(self.places, self.box)
        slots = np.delete(np.arange(len(places)), self.free)
        return slots, places[slots]

    @cached_property
    def by_rows(self) -> tuple[Positions, Index, Index]:
        """The owned slots row by row, their columns, and where each row begins: a scipy csr array but for its numbers."""
        slots, places = self.flat
        order = np.argsort(places, kind="stable")
        rows, columns = np.divmod(places[order], self.shape[1])
        index = np.int32 if max(*self.shape, len(slots)) < 2**31 else np.int64  # as scipy's solvers take it, without a copy
        starts = np.zeros(self.shape[0] + 1, index)
        np.cumsum(np.bincount(rows, minlength=self.shape[0]), out=starts[1:])
        return slots[order], columns.astype(index), starts


def _apart(table: Positions, axis: int) -> int | None:
    """How far all neighbors along an axis are apart; None where they differ."""
    length = table.shape[axis]
    if length == 1:
        return 0
    edge = table[(0,) * axis + (slice(None),) + (0,) * (table.ndim - axis - 1)]
    first = int(edge[1]) - int(edge[0])
    if int(edge[-1]) - int(edge[0]) != first * (length - 1):  # where steps differ, the ends of one edge mostly show it
        return None
    lead = (slice(None),) * axis
    even = table[(*lead, slice(1, None))] - table[(*lead, slice(None, -1))] == first
    return first if even.all() else None


def table_sum(tables: Tables, shape: Shape) -> Positions:
    """The sum of tables, written out and flat."""
    found = np.zeros(shape, dtype=np.int64)
    for table in tables:
        found += table
    return found.reshape(-1)


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
    twice = np.count_nonzero(owner != NOBODY) < len(spots)  # by one line, perhaps
    if twice and np.any(owner[spots] != lines):
        return None
    return listed(owner.reshape(passes, width), color, shape, way)


def listed(owner: Positions, color: Positions, shape: tuple[int, int], way: Way) -> Compression:
    """A compression whose owners, NOBODY included, are written out one by one."""
    some = np.zeros(len(owner), dtype=np.int64)  # a line of each pass, to stand where nobody does
    swept = np.flatnonzero(color != NOBODY)
    some[color[swept]] = swept
    held = owner != NOBODY
    owners = (np.where(held, owner, some[:, None]),)
    return Compression(way, shape, len(owner), (len(color),), owner.shape, (color,), owners, () if held.all() else (held,))
