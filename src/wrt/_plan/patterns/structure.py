"""How the axes of y relate to the axes of x, guessed from a few rows.

The guess is a product: every axis of x either follows an axis of y (see `links`) or is touched at the same indices by
every row. It may be wrong, and the certificate of the answer decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions, Shape
from wrt._core.pattern import Way
from wrt._plan.patterns.links import WORTH, Link, column_period, follow, period, shifted
from wrt._plan.patterns.samples import Samples
from wrt._plan.patterns.touched import Touched, touched


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
        color = np.zeros((1,) * len(shape), dtype=np.int64)
        for axis, (length, repeat) in enumerate(zip(shape, self.periods(way), strict=True)):
            along = (-1,) + (1,) * (len(shape) - axis - 1)
            color = color * repeat + (np.arange(length) % repeat).reshape(along)
        return np.broadcast_to(color, shape).reshape(-1)

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
    if widest > WORTH * seen.length:
        return None
    for k in sorted(range(len(y)), key=lambda k: abs(k - axis)):
        link = follow(k, axis, place[k], seen, (y[k], seen.length)) if y[k] > 1 else None
        if link is not None and (best is None or len(link.offsets) < len(best.offsets)):
            best = link
        if best is not None and len(best.offsets) <= widest:
            break
    return best
