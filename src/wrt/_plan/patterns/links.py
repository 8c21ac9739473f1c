"""One axis of x that follows one axis of y: the same index, a window with stride and dilation, wrapped or not."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from wrt._core.index import Positions, Shape
from wrt._plan.patterns.touched import Touched

WORTH = 0.75  # a window wider than this share of its axis might as well be all of it


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
    return best if best is not None and len(best.offsets) <= max(1, int(WORTH * sizes[1])) else None


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
