"""`assert_backward_correct`: derivatives agree with differences of the function itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._testing.probe import Probe
from wrt._testing.run import Run, Subject
from wrt._testing.settings import settings
from wrt._testing.verdict import Failed, Proven, Undecided, assertion
from wrt.extend import is_float, numbers, precision, tensor_like

Numbers = npt.NDArray[Any]

KINK = 0.05  # of the larger slope: a smooth function bends less than that within two steps


@assertion
def assert_backward_correct(
    f: Callable[..., Any], x: Any, *more: Any, directions: int = 3, output: Callable[[Any], Any] | None = None
) -> Proven:
    """The backward of f agrees with central differences of f, along random directions at x.

    Steps of several sizes tell how far the differences themselves can be trusted; in float32 that is about three digits,
    so give float64 where f takes it.

    >>> import torch
    >>> bool(assert_backward_correct(torch.sin, torch.randn(3, dtype=torch.float64)))
    True
    """
    subject = Subject(f, more, None, output)
    fits = lambda y, x: True
    run = subject.run(x, fits)
    if not is_float(run.given):
        raise Undecided("x has no derivative", f"it is of {run.given.dtype}", "give floating-point numbers")
    probe = Probe(run.y, run.x, settings.seed)
    random = np.random.default_rng(settings.seed)
    slopes = Slopes(subject, run, fits)
    worst = 0.0
    for _ in range(directions):
        u = probe.weights(np.ones(run.y.shape, dtype=bool))
        (g,) = probe.pull([u])
        if probe.cut:
            raise Undecided("f has no backward to compare", probe.cut, "let gradients through, or test the part behind")
        v = random.standard_normal(run.x.shape)
        told, measured, error = float((g * v).sum()), *slopes.along(u, v)
        size = max(abs(told), abs(measured), 1e-300)
        if abs(told - measured) > error + 8 * precision(run.x) * float(np.abs(g * v).sum()):
            raise _failed(run, slopes, u, g, v)
        worst = max(worst, abs(told - measured) / size)
    proof = f"{directions} random directions agree with central differences, to {worst:.1e}"
    return Proven(f"the backward of {getattr(f, '__name__', 'f')} is right at x", proof, probe.passes)


class Slopes:
    """Differences of u·f along a direction, with how far they can be trusted."""

    def __init__(self, subject: Subject, run: Run, fits: Callable[..., bool]) -> None:
        self.subject, self.run, self.fits = subject, run, fits
        self.x = numbers(run.given).astype(np.float64)
        self.size = float(np.abs(self.x).max(initial=0.0)) or 1.0

    def _at(self, u: Numbers, point: Numbers) -> tuple[float, float]:
        moved = self.subject.run(tensor_like(point, self.run.given), self.fits)
        y = numbers(moved.y).astype(np.float64)
        return float((u * y).sum()), float(np.abs(u * y).sum())

    def along(self, u: Numbers, v: Numbers) -> tuple[float, float]:
        """The slope, and a bound for its error: from two step sizes, and from roundoff in f."""
        epsilon = precision(self.run.y)
        best = (0.0, np.inf)
        before: float | None = None
        for step in (epsilon ** (1 / 3) * 4.0**-k for k in range(-1, 3)):
            h = step * self.size / max(float(np.abs(v).max()), 1e-30)
            (ahead, scale), (behind, _) = self._at(u, self.x + h * v), self._at(u, self.x - h * v)
            slope = (ahead - behind) / (2 * h)
            if before is not None:
                error = 2 * abs(slope - before) + 16 * epsilon * scale / h
                if error < best[1]:
                    best = (slope, error)
            before = slope
        return best

    def sides(self, u: Numbers, v: Numbers) -> tuple[float, float]:
        """The slopes just before x and just after it, each up to the roundoff of f."""
        h = 4 * precision(self.run.y) ** 0.5 * self.size / max(float(np.abs(v).max()), 1e-30)
        (behind, scale), (here, _), (ahead, _) = (self._at(u, self.x + k * h * v) for k in (-1, 0, 1))
        noise = 16 * precision(self.run.y) * scale / h
        before, after = (here - behind) / h, (ahead - here) / h
        return before - np.sign(after - before) * noise, after + np.sign(after - before) * noise


def _failed(run: Run, slopes: Slopes, u: Numbers, g: Numbers, v: Numbers) -> Failed | Undecided:
    """Name the input element that disagrees most, by halving the direction."""
    candidates = np.arange(g.size)
    while len(candidates) > 1:
        halves = candidates[: len(candidates) // 2], candidates[len(candidates) // 2 :]
        gaps = []
        for half in halves:
            part = np.zeros(g.size)
            part[half] = v.reshape(-1)[half]
            told = float((g.reshape(-1) * part).sum())
            gaps.append(abs(told - slopes.along(u, part.reshape(g.shape))[0]))
        candidates = halves[int(gaps[1] > gaps[0])]
    column = tuple(int(k) for k in np.unravel_index(candidates[0], g.shape)) if g.shape else ()
    unit = np.zeros(g.shape)
    unit[column] = 1.0
    measured, _ = slopes.along(u, unit)
    before, after = slopes.sides(u, unit)
    if abs(after - before) > KINK * max(abs(before), abs(after)) and min(before, after) <= g[column] <= max(before, after):
        return Undecided(
            f"f has a kink at x{list(column) if column else ''}",
            f"its slope is {before:.6g} before it and {after:.6g} after it, and the backward says {float(g[column]):.6g}",
            "every number between the two is right there: give an x beside it",
        )
    return Failed(
        f"the backward is wrong at x{list(column) if column else ''}: "
        f"it says {float(g[column]):.6g}, the function itself {measured:.6g}",
        "both for the same random combination of all outputs" + _lines(run),
        "ask wrt.check(f, x) which operation it is, and look at its backward",
    ).at(None, column, float(g[column]))


def _lines(run: Run) -> str:
    custom = [node for node in run.trace.graph if node.gradient == "custom" and node.where is not None]
    told = dict.fromkeys(f"{node.where}  {node.where.text}" for node in custom if node.where)
    return "".join(f"\n    custom backward at {line}" for line in told)
