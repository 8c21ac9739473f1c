"""Random pulls that tell a dependence from none, and a dependence from roundoff.

A pull with random weights on some rows of a Jacobian gives, at every column, a random combination of those rows: zero
at a column means, with certainty, that all of them are zero there, unless they cancel by an accident of measure zero.
Where no path leads, engines give an exact 0.0. A number that is not zero may still be roundoff, where a path is dense but
cancels (a Fourier transform, a difference of running sums): then pulling the same weights, scaled, gives other digits,
while a true derivative scales along.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import wrt
from wrt import d
from wrt._testing.verdict import Undecided
from wrt.errors import GradientCut, NoPath
from wrt.extend import numbers

Numbers = npt.NDArray[Any]

AT_ONCE = 8  # pulls whose weights are in memory together
SCALE = 1.5  # not a power of two: every product is rounded anew
REPRODUCED = 8.0  # a true derivative is at least this many times what differs between two pulls
SMALLEST = 1e-12  # of the largest derivative beside it: what a mask of -30 lets through is no path


@dataclass(slots=True)
class Probe:
    """Pulls from y to x, counted."""

    y: wrt.Handle
    x: wrt.Handle
    seed: int = 0
    passes: int = 0
    cut: str = ""
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def weights(self, rows: npt.NDArray[np.bool_]) -> Numbers:
        """Random weights on some elements of y, never near zero."""
        signs = self.random.choice([-1.0, 1.0], size=self.y.shape) * self.random.uniform(0.5, 1.5, size=self.y.shape)
        return np.where(rows, signs, 0.0)

    def pull(self, weights: list[Numbers]) -> list[Numbers]:
        """|u J| for each u, in x's shape."""
        J = d(self.y) / d(self.x)
        found: list[Numbers] = []
        for start in range(0, len(weights), AT_ONCE):
            some = np.stack(weights[start : start + AT_ONCE])
            try:
                pulled = numbers(some @ J)
            except GradientCut as cut:
                self.cut = cut.where
                pulled = np.zeros((len(some), *self.x.shape))
            except NoPath:
                pulled = np.zeros((len(some), *self.x.shape))
            self.passes += len(some)
            found.extend(pulled.astype(np.float64))
        return found

    def true_leak(self, u: Numbers, g: Numbers, forbidden: npt.NDArray[np.bool_]) -> bool:
        """Whether what came out at forbidden columns is a derivative; False for roundoff and for nothing at all."""
        there = np.abs(g[forbidden])
        largest = float(there.max(initial=0.0))
        if not np.isfinite(g).all():
            raise Undecided(
                f"the gradient from {self.y.name or 'y'} to {self.x.name or 'x'} is not finite",
                f"{int((~np.isfinite(g)).sum())} of {g.size} entries are NaN or infinite",
                "ask wrt.why(y, x) where they are born, or test at another input",
            )
        if largest <= SMALLEST * float(np.abs(g).max(initial=0.0)):
            return False
        (again,) = self.pull([SCALE * u])
        noise = float(np.abs(again[forbidden] / SCALE - g[forbidden]).max(initial=0.0))
        return largest > REPRODUCED * noise

    def element(self, rows: npt.NDArray[np.bool_], column: tuple[int, ...]) -> tuple[tuple[int, ...], float]:
        """Which single element of y, among some, depends most surely on one element of x, and how much."""
        candidates = np.flatnonzero(rows.reshape(-1))
        while len(candidates) > 1:
            half = candidates[: len(candidates) // 2]
            chosen = np.zeros(rows.size, dtype=bool)
            chosen[half] = True
            weights = self.weights(chosen.reshape(rows.shape))
            rest = np.zeros(rows.size, dtype=bool)
            rest[candidates[len(half) :]] = True
            first, second = self.pull([weights, self.weights(rest.reshape(rows.shape))])
            candidates = half if abs(first[column]) >= abs(second[column]) else candidates[len(half) :]
        output = tuple(int(k) for k in np.unravel_index(candidates[0], rows.shape))
        return output, float((d(self.y)[output] / d(self.x)[column]).item().real)


def carries(h: wrt.Handle, x: wrt.Handle, cotangent: Numbers, forbidden: npt.NDArray[np.bool_]) -> bool:
    """Whether a cotangent that has arrived at h goes on to forbidden elements of x."""
    probe = Probe(h, x)
    (g,) = probe.pull([cotangent])
    return bool(np.any(g[forbidden] != 0)) and probe.true_leak(cotangent, g, forbidden)


def along(shape: tuple[int, ...], axis: int, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """A mask of a shape that follows one axis."""
    form = [1] * len(shape)
    form[axis] = len(chosen)
    return np.broadcast_to(chosen.reshape(form), shape)


def profile(g: Numbers, axis: int) -> Numbers:
    """The largest |g| at each position of one axis."""
    others = tuple(k for k in range(g.ndim) if k != axis)
    return np.abs(g).max(axis=others) if others else np.abs(g)
