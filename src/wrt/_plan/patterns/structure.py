"""How the axes of y relate to the axes of x, guessed from a few rows.

The guess is a product: every axis of x either follows an axis of y (the same index, a window with stride and dilation,
wrapped or not) or is touched at the same indices by every row. It may be wrong, and the certificate of the answer decides.
As tables of a few hundred numbers such a pattern is said in full, however many entries it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions, Shape, row_major
from wrt._core.pattern import NOBODY, Compression, Masks, Tables, Way, table_sum
from wrt._plan.patterns.samples import Samples
from wrt._plan.thresholds import GAIN

Number = TypeVar("Number", np.int64, np.bool_)

# ---------------------------------------------------------------- which indices of one axis of x the sampled rows touch


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


# ---------------------------------------------------------------- one axis of x that follows one axis of y


@dataclass(frozen=True, slots=True)
class Link:
    """At index r of axis `y`, a row touches axis `x` at r * up // down + offset, for these offsets only."""

    y: int
    x: int
    up: int
    down: int
    offsets: tuple[int, ...]
    wrap: bool

    def base(self, index: Positions) -> Positions:
        return index if self.up == self.down else index * self.up // self.down

    def inside(self, offset: int, of_y: int, of_x: int) -> slice:
        """The indices of y, one stretch, that touch something within x at an offset."""
        first, end = (-(-(spot - offset) * self.down // self.up) for spot in (0, of_x))
        return slice(max(0, first), max(0, min(of_y, end)))

    def __str__(self) -> str:
        words = f"in a window of {len(self.offsets)}"
        if self.offsets == (0,) and self.up == self.down:
            return "index by index"
        if self.up != self.down:
            words += f", stride {self.up}" if self.down == 1 else f", {self.down} to one"
        step = self.offsets[1] - self.offsets[0] if len(self.offsets) > 1 else 1
        words += f", dilation {step}" if step > 1 else ""
        return words + (", wrapped around" if self.wrap else "")


def shifted(x: int, place: Sequence[Positions], touched: Touched, y: Shape) -> Link | None:
    """The axis of y, the nearest first, from which x's axis is always equally far; None where there is none.

    Nothing is narrower, so that no other way to follow has to be looked at.
    """
    for axis in sorted(range(len(y)), key=lambda k: abs(k - x)):
        index = place[axis]
        if y[axis] > 1 and len(touched.index):
            away = touched.index - index[touched.sample]
            if (away == away[0]).all() and (index != index[0]).any():
                return Link(axis, x, 1, 1, (int(away[0]),), wrap=False)
    return None


def follow(y: int, x: int, index: Positions, touched: Touched, sizes: tuple[int, int]) -> Link | None:
    """The narrowest link that explains the samples, or None if a window would be no help.

    `index[s]` is where sample s stands on y's axis.
    """
    if (index == index[0]).all():
        return None
    best: Link | None = None
    for up, down in _strides(*sizes, index, touched):
        stands = index[touched.sample]
        away = touched.index - (stands if up == down else stands * up // down)
        offsets = _filled(away)
        if best is None or len(offsets) < len(best.offsets):
            best = Link(y, x, up, down, tuple(offsets), wrap=False)
        apart = offsets[-1] - offsets[0]  # what lies within half of the axis lies no closer the other way round
        if len(best.offsets) > 1 and 2 * apart >= sizes[1] and sizes[0] * up == sizes[1] * down:
            offsets = _filled(_centered(away, sizes[1]))
            if 2 * len(offsets) < len(best.offsets):  # one sample near an edge tells a wrapped axis from a plain one
                best = Link(y, x, up, down, tuple(offsets), wrap=True)
        if len(best.offsets) == 1:
            break  # nothing is narrower
    return best if best is not None and len(best.offsets) <= max(1, int(GAIN * sizes[1])) else None


def _slope(index: Positions, touched: Touched) -> float:
    """How far x's axis is walked for each step on y's, by the samples' centers."""
    away = index - index.mean()
    return float((away * touched.centers).sum() / max(1e-9, float((away * away).sum())))


def _strides(of_y: int, of_x: int, index: Positions, touched: Touched) -> list[tuple[int, int]]:
    """Strides that the two lengths and the samples suggest, the plain one first."""
    if of_x == of_y:
        return [(1, 1)]
    if of_x < of_y:
        found = [(1, 1), (1, of_y // of_x), (1, -(-of_y // of_x))]
    elif (slope := round(_slope(index, touched))) > 1:
        found = [(1, 1), (slope, 1), (of_x // of_y, 1)]
    else:
        found = [(1, 1), (of_x // of_y, 1), (-(-of_x // of_y), 1), (round(of_x / of_y), 1)]
    return list(dict.fromkeys(found))


def _centered(away: Positions, size: int) -> Positions:
    half = size // 2
    return (away + half) % size - half


def _filled(offsets: Positions) -> range:
    """A window without the holes that masks (a ReLU, a max-pool) left in the samples; a dilated one keeps its step."""
    first = int(offsets.min())
    return range(first, int(offsets.max()) + 1, int(np.gcd.reduce(offsets - first)) or 1)


def period(link: Link, length: int, of_x: int) -> int:
    """The smallest K for which indices of y that are equal modulo K never touch the same index of x."""
    return _smallest(_meeting(link, length, of_x), length)


def column_period(link: Link, of_x: int) -> int:
    """The smallest K for which indices of x that are equal modulo K are never touched by one row."""
    return _smallest(_differences(link, of_x), of_x)


def _smallest(gaps: Set[int], length: int) -> int:
    """The smallest step, up to a length, of which no multiple is among the gaps."""
    reach = min(length, max(gaps, default=0) + 1)
    return next((step for step in range(1, length) if gaps.isdisjoint(range(step, reach, step))), length)


def _meeting(link: Link, length: int, of_x: int) -> set[int]:
    """How far apart two indices of y that touch one index of x can be; where a stride leaves a rest, by either rounding."""
    clash: Set[int] = _differences(link, of_x)
    if link.wrap:
        around = range(0, -(-length * link.up // link.down) + 1, of_x)
        clash = {gap + turns for gap in clash for turns in around}
    if link.up == link.down:
        return {gap for gap in clash if gap > 0}
    bases = [((gap - 1) * link.down // link.up + 1, -(-(gap + 1) * link.down // link.up)) for gap in clash if gap >= 0]
    return {gap for first, end in bases for gap in range(max(1, first), end)}


def _differences(link: Link, of_x: int) -> frozenset[int]:
    """How far apart two indices that one row touches can be; around the corner too where the axis wraps."""
    found = {a - b for a in link.offsets for b in link.offsets}
    return frozenset(gap % of_x for gap in found) if link.wrap else frozenset(found)


# ---------------------------------------------------------------- all axes


@dataclass(frozen=True, eq=False)
class Structure:
    """`links` tell which axes of x follow which of y; `kept` which indices the other axes of x are touched at."""

    y: Shape
    x: Shape
    links: tuple[Link, ...]
    kept: dict[int, Positions]

    @property
    def volume(self) -> int:
        """Entries of an inner row."""
        return prod(len(link.offsets) for link in self.links) * prod(len(kept) for kept in self.kept.values())

    def coloring(self, way: Way = "pull") -> Positions:
        """The pass of every row (of every column, for a push): what shares a pass shares no entry."""
        shape = self.y if way == "pull" else self.x
        return table_sum(_colors(shape, self.periods(way)), shape)

    def passes_by(self, way: Way) -> int:
        return prod(self.periods(way))

    @property
    def passes(self) -> int:
        return self.passes_by("pull")

    def periods(self, way: Way) -> list[int]:
        """How far apart two indices of an axis must be to share a pass."""
        return self._of_rows if way == "pull" else self._of_columns

    @cached_property
    def _of_rows(self) -> list[int]:
        periods = list(self.y)
        for link in self.links:
            periods[link.y] = min(periods[link.y], period(link, self.y[link.y], self.x[link.x]))
        return periods

    @cached_property
    def _of_columns(self) -> list[int]:
        following = {link.x: link for link in self.links}
        return [column_period(following[k], n) if k in following else n for k, n in enumerate(self.x)]

    def entries(self) -> tuple[Positions, Positions]:
        """(rows, columns) of everything that may be nonzero."""
        rows = np.arange(prod(self.y))
        place = np.unravel_index(rows, self.y) if self.y else ()
        columns = np.zeros((len(rows), 1), dtype=np.int64)
        valid: npt.NDArray[np.bool_] | None = None
        links = {link.x: link for link in self.links}
        for axis, length in enumerate(self.x):
            if axis in links:
                spot, inside = _window(links[axis], place[links[axis].y], length)
            else:
                spot, inside = self.kept[axis][None, :], None
            columns = (columns[:, :, None] * length + spot[:, None, :]).reshape(len(rows), -1)
            width = spot.shape[1]
            if valid is not None and width > 1:
                valid = np.repeat(valid, width, axis=1)
            if inside is not None:
                tiled = np.tile(inside, (1, columns.shape[1] // width))
                valid = tiled if valid is None else valid & tiled
        spread = np.broadcast_to(rows[:, None], columns.shape)
        return (spread.reshape(-1), columns.reshape(-1)) if valid is None else (spread[valid], columns[valid])

    def __str__(self) -> str:
        return " and ".join(f"axis {link.x} of x follows axis {link.y} of y {link}" for link in self.links)


def _window(link: Link, index: Positions, length: int) -> tuple[Positions, npt.NDArray[np.bool_] | None]:
    spot = link.base(index)[:, None] + np.asarray(link.offsets)[None, :]  # (m, w)
    if link.wrap:
        return spot % length, None
    inside = (spot >= 0) & (spot < length)
    return np.where(inside, spot, 0), None if inside.all() else inside


def relate(samples: Samples, y: Shape, x: Shape) -> Structure:
    """How axes relate if the shapes are these."""
    rows, sample, column = samples.alive
    place = np.unravel_index(rows, y) if y else ()
    spots = np.unravel_index(column, x) if x else ()
    links: list[Link] = []
    kept: dict[int, Positions] = {}
    for axis, length in enumerate(x):
        if len(x) == 1:  # each column is an index of the only axis, and they come in order
            seen = Touched(sample, column, len(rows), length)
        else:
            seen = touched(sample, spots[axis], len(rows), length)
        if seen.everything:  # whatever the row: nothing to follow
            kept[axis] = np.arange(length)
            continue
        link = (shifted(axis, place, seen, y) or _narrowest(axis, place, seen, y)) if length > 1 else None
        if link is not None:
            links.append(link)
        else:
            kept[axis] = np.arange(length) if (alike := seen.alike) is None else alike
    return Structure(y, x, tuple(links), kept)


def _narrowest(axis: int, place: Sequence[Positions], seen: Touched, y: Shape) -> Link | None:
    """How an axis of x follows one of y, the nearest first; nothing is narrower than what one row touches."""
    best: Link | None = None
    widest = int(seen.counts.max())
    if widest > GAIN * seen.length:
        return None
    for k in sorted(range(len(y)), key=lambda k: abs(k - axis)):
        link = follow(k, axis, place[k], seen, (y[k], seen.length)) if y[k] > 1 else None
        if link is not None and (best is None or len(link.offsets) < len(best.offsets)):
            best = link
        if best is not None and len(best.offsets) <= widest:
            break
    return best


# ---------------------------------------------------------------- as tables


def gridded(structure: Structure, way: Way) -> Compression | None:
    """The compression of a product of windows; None where an axis is followed twice, so that it is no product."""
    links = structure.links
    if len({link.y for link in links}) < len(links):
        return None
    swept, read = (structure.y, structure.x) if way == "pull" else (structure.x, structure.y)
    partner = {(link.y if way == "pull" else link.x): link for link in links}
    periods = structure.periods(way)
    rank = len(swept) + len(read)
    owners: list[Positions] = []
    owned: list[npt.NDArray[np.bool_]] = []
    for axis, (step, repeat) in enumerate(zip(row_major(swept), periods, strict=True)):
        if axis not in partner:
            owners.append(_laid(np.arange(repeat) * step, rank, axis))
            continue
        link = partner[axis]
        other = link.x if way == "pull" else link.y
        found = _owners(link, repeat, structure.y[link.y], structure.x[link.x], way)
        if found is None:
            return None
        line, held = found  # (repeat, length of the other axis)
        spread = [1] * rank
        spread[axis], spread[len(swept) + other] = line.shape
        owners.append((line * step).reshape(spread))
        if not held.all():
            owned.append(held.reshape(spread))
    owned.extend(_kept(structure, way, rank))
    passes = prod(periods)
    return Compression(
        way, (prod(structure.y), prod(structure.x)), passes, swept, (*periods, *read),
        _colors(swept, periods), tuple(owners), tuple(owned),
    )  # fmt: skip


def _kept(structure: Structure, way: Way, rank: int) -> Masks:
    """Indices of x's other axes that no row touches."""
    found: list[npt.NDArray[np.bool_]] = []
    for axis, kept in structure.kept.items():
        if len(kept) < structure.x[axis]:
            touched = np.zeros(structure.x[axis], dtype=bool)
            touched[kept] = True
            found.append(_laid(touched, rank, axis + (len(structure.y) if way == "pull" else 0)))
    return tuple(found)


def _laid(vector: npt.NDArray[Number], rank: int, axis: int) -> npt.NDArray[Number]:
    """A vector along one axis of many."""
    return vector.reshape((1,) * axis + (-1,) + (1,) * (rank - axis - 1))


def _in_turn(repeat: int, length: int) -> Positions:
    """0, 1, ... up to the period, again and again: sooner there than `arange(length) % repeat`."""
    turns = np.empty((-(-length // repeat), repeat), dtype=np.int64)
    turns[:] = np.arange(repeat)
    return turns.reshape(-1)[:length]


def _colors(lines: Shape, periods: list[int]) -> Tables:
    steps = row_major(tuple(periods))
    return tuple(
        _laid(_in_turn(repeat, length) * step, len(lines), axis)
        for axis, (length, repeat, step) in enumerate(zip(lines, periods, steps, strict=True))
    )


def _owners(
    link: Link, repeat: int, of_y: int, of_x: int, way: Way
) -> tuple[Positions, npt.NDArray[np.bool_]] | None:
    """(line, whether it has an entry there) by (color, index of the other axis); None where two lines would meet."""
    lines, across = (of_y, of_x) if way == "pull" else (of_x, of_y)
    owner = np.full(repeat * across, NOBODY, dtype=np.int64)
    color = _in_turn(repeat, lines) * across
    found: list[tuple[Positions, Positions]] = []
    every = np.arange(of_y)
    for some, columns in _touched(link, every, of_x):
        rows = every[some]
        line, spots = (rows, color[some] + columns) if way == "pull" else (columns, color[columns] + rows)
        owner[spots] = line
        found.append((spots, line))
    held = owner != NOBODY
    twice = np.count_nonzero(held) < sum(len(spots) for spots, _ in found)  # by one line, perhaps
    if twice and any(np.any(owner[spots] != line) for spots, line in found):
        return None
    shape = (repeat, across)
    nobodys = np.arange(repeat)[:, None]  # a line of this color where nobody has an entry
    return np.where(held.reshape(shape), owner.reshape(shape), nobodys), held.reshape(shape)


def _touched(link: Link, rows: Positions, of_x: int) -> Iterator[tuple[slice, Positions]]:
    """For each offset, the rows that touch something within x, and what they touch."""
    base = link.base(rows)
    for offset in link.offsets:
        if link.wrap:
            yield slice(None), (base + offset) % of_x
        else:
            some = link.inside(offset, len(rows), of_x)
            yield some, base[some] + offset
