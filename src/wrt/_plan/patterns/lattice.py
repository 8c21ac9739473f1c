"""Patterns thinner than a product of windows: a five-point stencil, a flattened grid, channels that meet at one point.

The offsets of a row are taken together, and separately for each *class* of rows (an index of the short axes of y that
no axis of x follows: which channel). Rows are colored by a linear hash, `(shift[class] + weights . index) mod K`, with
the smallest K that keeps all clashing rows apart. A five-point stencil takes 5 passes instead of 9. Columns are colored
the same way, by the offsets turned round, where a row has far fewer entries than a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions, Shape, row_major
from wrt._core.pattern import Way
from wrt._plan.patterns.samples import Samples
from wrt._plan.patterns.structure import Structure
from wrt._plan.thresholds import FAR_FEWER, GAIN, LATTICE_CLASSES, LATTICE_OFFSETS, LATTICE_WEIGHTS

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hash:
    """The pass of a line is (shifts[class] + weights . index) mod passes."""

    weights: tuple[int, ...]
    shifts: tuple[int, ...]
    passes: int


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """`offsets[class]` lists, one in a line, where a row touches x: relative on linked axes, absolute on the others.

    Where rows or columns have no hash of their own, the product of windows colors them.
    """

    structure: Structure
    classes: tuple[int, ...]
    offsets: tuple[Offsets, ...]
    rows: Hash | None
    columns: Hash | None

    @property
    def passes(self) -> int:
        return self.passes_by("pull")

    def passes_by(self, way: Way) -> int:
        hashed = self.rows if way == "pull" else self.columns
        return self.structure.passes_by(way) if hashed is None else hashed.passes

    def coloring(self, way: Way = "pull") -> Positions:
        """The pass of every row, of every column for a push."""
        structure, pulls = self.structure, way == "pull"
        hashed = self.rows if pulls else self.columns
        if hashed is None:
            return structure.coloring(way)
        shape = structure.y if pulls else structure.x
        place = np.ix_(*map(np.arange, shape))  # small tables: they broadcast to all places
        color = np.array(hashed.shifts)[_class_of(place, shape, self.classes if pulls else _unlinked(structure))]
        for link, weight in zip(structure.links, hashed.weights, strict=True):
            color = color + weight * place[link.y if pulls else link.x]
        return np.broadcast_to(color % hashed.passes, shape).reshape(-1)

    def entries(self) -> tuple[Positions, Positions]:
        """(rows, columns) of everything that may be nonzero."""
        y, x, links = self.structure.y, self.structure.x, self.structure.links
        in_y, in_x, rest = row_major(y), row_major(x), _unlinked(self.structure)
        places = np.ix_(*(np.arange(y[axis]) for axis in self.classes))
        firsts = sum((place * in_y[axis] for axis, place in zip(self.classes, places, strict=True)), np.zeros(1, np.int64))
        rows: list[Positions] = []
        columns: list[Positions] = []
        steps = self._steps()
        for first, offsets in zip(firsts.reshape(-1).tolist(), self.offsets, strict=True):
            for offset in offsets.tolist():
                along = [steps[link.x, offset[link.x]] for link in links]
                rows.append(_sums(first, [index for index, _ in along]))
                columns.append(_sums(sum(offset[axis] * in_x[axis] for axis in rest), [spots for _, spots in along]))
        return np.concatenate(rows), np.concatenate(columns)

    def _steps(self) -> dict[tuple[int, int], tuple[Positions, Positions]]:
        """For each linked axis of x and each offset along it: how far the indices of y and x that meet lead into y and x."""
        y, x = self.structure.y, self.structure.x
        in_y, in_x = row_major(y), row_major(x)
        found: dict[tuple[int, int], tuple[Positions, Positions]] = {}
        for link in self.structure.links:
            for offset in {spot for each in self.offsets for spot in each[:, link.x].tolist()}:
                index, spots = _along(offset, y[link.y], x[link.x], link.wrap)
                found[link.x, offset] = index * in_y[link.y], spots * in_x[link.x]
        return found

    def __str__(self) -> str:
        most = max(len(offsets) for offsets in self.offsets)
        return f"{self.structure}; {most} entries a row instead of {self.structure.volume}"


def _sums(first: int, steps: Sequence[Positions]) -> Positions:
    """A place plus one step of each kind, all combinations of them."""
    found = np.array([first])
    for each in steps:
        found = np.add.outer(found, each)
    return found.reshape(-1)


def _along(offset: int, of_y: int, of_x: int, wrap: bool) -> tuple[Positions, Positions]:
    """Indices of an axis of y, and those of x that they touch at an offset; what would lie outside of x is left out."""
    index = np.arange(of_y)
    if wrap:
        return index, (index + offset) % of_x
    index = index[max(0, -offset) : max(0, of_x - offset)]
    return index, index + offset


def _class_of(place: tuple[Positions, ...], shape: Shape, axes: tuple[int, ...]) -> Positions:
    """Which class each of these places belongs to, by its index on some axes."""
    found = np.zeros_like(place[0])
    for axis in axes:
        found = found * shape[axis] + place[axis]
    return found


def _unlinked(structure: Structure) -> tuple[int, ...]:
    """Axes of x that follow none of y."""
    linked = {link.x for link in structure.links}
    return tuple(axis for axis in range(len(structure.x)) if axis not in linked)


def thin(structure: Structure, samples: Samples) -> Lattice | None:
    """The pattern by joint offsets, where that takes clearly fewer passes than the product of windows."""
    links = structure.links
    if any(link.up != link.down for link in links) or len({link.y for link in links}) < len(links):
        return None
    followed = {link.y for link in links}
    classes = tuple(axis for axis in range(len(structure.y)) if axis not in followed and structure.y[axis] > 1)
    count = prod(structure.y[axis] for axis in classes)
    if count > LATTICE_CLASSES:
        return None
    least = max(samples.counts)  # one row has as many offsets
    if least > LATTICE_OFFSETS or least > GAIN * max(structure.passes, structure.passes_by("push")):
        return None
    offsets = _joint_offsets(structure, samples, classes, count)
    if offsets is None or sum(map(len, offsets)) > LATTICE_OFFSETS:
        return None
    fewest = max(map(len, offsets))
    rows = _hashed(structure, offsets, [link.x for link in links], fewest, structure.passes)
    columns = None
    if rows is None or fewest <= FAR_FEWER * rows.passes:
        columns = _hashed_columns(structure, offsets, fewest)
    return None if rows is None and columns is None else Lattice(structure, classes, tuple(offsets), rows, columns)


def _hashed(structure: Structure, offsets: list[Offsets], linked: list[int], fewest: int, instead_of: int) -> Hash | None:
    """The hash with the fewest passes; None where it would not be clearly fewer than these."""
    most = min(int(instead_of * GAIN), 2 * fewest + 8)
    gaps = _gaps(offsets, linked) if fewest <= most else []
    for passes in range(fewest, most + 1):
        hashed = _hash(structure, gaps, passes)
        if hashed is not None:
            return Hash(*hashed, passes)
    return None


def _hashed_columns(structure: Structure, offsets: list[Offsets], fewest: int) -> Hash | None:
    """The same for columns: seen from x, an entry lies where the offset is turned round, in a row of some class."""
    axes = _unlinked(structure)
    if prod(structure.x[axis] for axis in axes) > LATTICE_CLASSES:
        return None
    linked = [link.x for link in structure.links]
    turned: list[list[tuple[int, ...]]] = [[] for _ in range(prod(structure.x[axis] for axis in axes))]
    for kind, each in enumerate(offsets):
        members = _class_of(tuple(each.T), structure.x, axes)
        for member, spot in zip(members.tolist(), (-each[:, linked]).tolist(), strict=True):
            turned[member].append((*spot, kind))
    seen = [np.array(each, dtype=np.int64).reshape(-1, len(linked) + 1) for each in turned]
    return _hashed(structure, seen, list(range(len(linked))), fewest, structure.passes_by("push"))


def _joint_offsets(
    structure: Structure, samples: Samples, classes: tuple[int, ...], count: int
) -> list[Offsets] | None:
    """Offsets seen in each class; None where a class was never seen. At an edge, what the fullest class has counts too."""
    place = np.unravel_index(samples.rows, structure.y)
    shape = tuple(structure.y[axis] for axis in classes)
    member = np.ravel_multi_index([place[axis] for axis in classes], shape) if shape else np.zeros_like(samples.rows)
    sample, column = samples.spots
    spots = np.stack(np.unravel_index(column, structure.x), 1)  # (nonzeros, axes of x)
    for link in structure.links:
        spots[:, link.x] -= place[link.y][sample]
        if link.wrap:
            half = structure.x[link.x] // 2
            spots[:, link.x] = (spots[:, link.x] + half) % structure.x[link.x] - half
    seen: list[set[tuple[int, ...]]] = [set() for _ in range(count)]
    for kind, spot in zip(member[sample].tolist(), spots.tolist(), strict=True):
        seen[kind].add(tuple(spot))
    if not all(seen):
        return None
    inside = set(member[_inner(structure, place)].tolist())
    fullest = max(seen, key=len)
    for kind, each in enumerate(seen):
        if kind not in inside and each < fullest:  # only seen at an edge, where offsets are cut off
            seen[kind] = fullest
    return [np.array(sorted(each), dtype=np.int64) for each in seen]


def _inner(structure: Structure, place: tuple[Positions, ...]) -> npt.NDArray[np.bool_]:
    """Whether the windows of these rows lie within x as a whole."""
    found = np.ones(len(place[0]), dtype=bool)
    for link in structure.links:
        if not link.wrap:
            index = place[link.y]
            found &= (index + link.offsets[0] >= 0) & (index + link.offsets[-1] < structure.x[link.x])
    return found


Gaps = list[list[Offsets]]
"""`gaps[a][b]`: r' - r for which a row r of class a and a row r' of class b touch the same place of x, one in a line."""


def _gaps(offsets: list[Offsets], linked: list[int]) -> Gaps:
    return [[_differences(one, other, linked) for other in offsets[: k + 1]] for k, one in enumerate(offsets)]


def _hash(structure: Structure, gaps: Gaps, passes: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Weights and shifts that keep all clashing rows apart modulo `passes`; None where none were found."""
    choices = [
        range(0, passes, passes // gcd(passes, structure.x[link.x])) if link.wrap else range(passes)
        for link in structure.links
    ]
    if prod(map(len, choices)) > LATTICE_WEIGHTS:
        return None
    weights = np.array(list(product(*choices)))  # (tries, linked axes)
    own = np.concatenate([row[-1] for row in gaps])
    own = own[own.any(1)]
    weights = weights[((weights @ own.T) % passes != 0).all(1)] if len(own) else weights[:1]
    for tried in weights[:64]:
        shifts = _shifts(tried, gaps, passes)
        if shifts is not None:
            return tuple(tried.tolist()), shifts
    return None


def _shifts(weights: Offsets, gaps: Gaps, passes: int) -> tuple[int, ...] | None:
    shifts: list[int] = []
    for row in gaps:
        taken = {
            (int(step) + shift) % passes
            for shift, gap in zip(shifts, row, strict=False)
            for step in gap @ weights
        }
        free = next((shift for shift in range(passes) if shift not in taken), None)
        if free is None:
            return None
        shifts.append(free)
    return tuple(shifts)


def _differences(one: Offsets, other: Offsets, linked: list[int]) -> Offsets:
    rest = [axis for axis in range(one.shape[1]) if axis not in linked]
    meet = (one[:, None, rest] == other[None, :, rest]).all(2)
    gaps = (one[:, None, linked] - other[None, :, linked])[meet]
    return np.array(sorted(set(map(tuple, gaps.tolist()))), dtype=np.int64).reshape(-1, len(linked))
