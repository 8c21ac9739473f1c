"""One axis of x that follows one axis of y: the same index, a window with stride and dilation, wrapped or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions

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
        return index * self.up // self.down

    def __str__(self) -> str:
        words = f"in a window of {len(self.offsets)}"
        if self.offsets == (0,) and self.up == self.down:
            return "index by index"
        if self.up != self.down:
            words += f", stride {self.up}" if self.down == 1 else f", {self.down} to one"
        step = self.offsets[1] - self.offsets[0] if len(self.offsets) > 1 else 1
        words += f", dilation {step}" if step > 1 else ""
        return words + (", wrapped around" if self.wrap else "")


def follow(
    y: int, x: int, index: Positions, touched: npt.NDArray[np.bool_], sizes: tuple[int, int]
) -> Link | None:
    """The narrowest link that explains the samples, or None if a window would be no help.

    `index[s]` is where sample s stands on y's axis, `touched[s]` which indices of x's axis it touches.
    """
    if len(np.unique(index)) < 2:
        return None
    sample, column = np.nonzero(touched)
    best: Link | None = None
    for up, down in _strides(*sizes, slope=_slope(index, touched)):
        away = column - index[sample] * up // down
        offsets = _filled(np.unique(away))
        if best is None or len(offsets) < len(best.offsets):
            best = Link(y, x, up, down, offsets, wrap=False)
        if sizes[0] * up == sizes[1] * down:
            offsets = _filled(np.unique(_centered(away, sizes[1])))
            if 2 * len(offsets) < len(best.offsets):  # one sample near an edge tells a wrapped axis from a plain one
                best = Link(y, x, up, down, offsets, wrap=True)
    return best if best is not None and len(best.offsets) <= max(1, int(WORTH * sizes[1])) else None


def _slope(index: Positions, touched: npt.NDArray[np.bool_]) -> float:
    """How far x's axis is walked for each step on y's, by the samples' centers."""
    centers = (touched * np.arange(touched.shape[1])).sum(1) / touched.sum(1)
    away = index - index.mean()
    return float((away * centers).sum() / max(1e-9, float((away * away).sum())))


def _strides(of_y: int, of_x: int, *, slope: float) -> list[tuple[int, int]]:
    """Strides that the two lengths and the samples suggest, the plain one first."""
    if round(slope) > 1 and of_x > of_y:
        found = [(1, 1), (round(slope), 1), (of_x // of_y, 1)]
    elif of_x > of_y:
        found = [(1, 1), (of_x // of_y, 1), (-(-of_x // of_y), 1), (round(of_x / of_y), 1)]
    else:
        found = [(1, 1), (1, of_y // of_x), (1, -(-of_y // of_x))]
    return list(dict.fromkeys(found))


def _centered(away: Positions, size: int) -> Positions:
    half = size // 2
    return (away + half) % size - half


def _filled(offsets: Positions) -> tuple[int, ...]:
    """A window without the holes that masks (a ReLU, a max-pool) left in the samples; a dilated one keeps its step."""
    if len(offsets) < 2:
        return tuple(offsets.tolist())
    step = int(np.gcd.reduce(np.diff(offsets)))
    return tuple(range(int(offsets[0]), int(offsets[-1]) + 1, step))


def period(link: Link, length: int, of_x: int) -> int:
    """The smallest K for which indices of y that are equal modulo K never touch the same index of x."""
    offsets = np.asarray(link.offsets)
    clash = np.unique(offsets[:, None] - offsets[None, :])
    for candidate in range(1, length):
        gaps = np.arange(candidate, length, candidate) * link.up
        gaps = np.concatenate([gaps // link.down, -(-gaps // link.down)])
        taken = np.isin(gaps % of_x, clash % of_x) if link.wrap else np.isin(gaps, clash)
        if not taken.any():
            return candidate
    return length


def column_period(link: Link, of_x: int) -> int:
    """The smallest K for which indices of x that are equal modulo K are never touched by one row."""
    offsets = np.asarray(link.offsets)
    apart = np.unique(offsets[:, None] - offsets[None, :])
    for candidate in range(1, of_x):
        gaps = np.arange(candidate, of_x, candidate)
        if not (np.isin(gaps % of_x, apart % of_x) if link.wrap else np.isin(gaps, apart)).any():
            return candidate
    return of_x
