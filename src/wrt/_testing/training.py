"""Assertions about training: every parameter learns, and a backward agrees with differences of its function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

import numpy as np

from wrt import d
from wrt._testing.probe import Numbers, Probe, Run, Subject
from wrt._testing.verdict import Failed, Proven, Undecided, assertion, settings
from wrt.errors import GradientCut, NoPath, NotDifferentiable, NotRecorded, UnknownName
from wrt.extend import is_float, numbers, precision, tensor_like


@assertion
def assert_all_parameters_learn(loss: Any, model: Any, *, frozen: Sequence[str] = ()) -> Proven:
    """Every parameter of the model gets a gradient of this loss that is there, finite and not zero.

    `frozen` names those that are meant to rest, as patterns: frozen=["backbone.*"]. One shared pass for all of them.

    >>> import torch
    >>> model = torch.nn.Linear(3, 2)
    >>> assert_all_parameters_learn(model(torch.ones(1, 3)).sum(), model).claim
    'all 2 parameters learn'
    """
    found = dict(_named(d(loss) / d(model), ""))
    for pattern in frozen:
        if not any(fnmatch(name, pattern) for name in found):
            raise _no_such(pattern, list(found))
    asked = {name: one for name, one in found.items() if not any(fnmatch(name, pattern) for pattern in frozen)}
    faults = {name: fault for name, one in asked.items() if (fault := _fault(one))}
    if faults:
        name, fault = next(iter(faults.items()))
        rest = [f"{name}: {fault}" for name, fault in list(faults.items())[1:9]]
        more = len(faults) - 1 - len(rest)
        raise Failed(
            f"{name} does not learn: {fault}",
            "\n    ".join([f"{len(faults)} of {len(asked)} parameters do not:", f"{name}: {fault}", *rest])
            + (f"\n    and {more} more" if more > 0 else ""),
            f"use it in the loss, let gradients through, or name it in frozen=[{name!r}]",
        )
    resting = len(found) - len(asked)
    notes = (f"{resting} were named frozen",) if resting else ()
    return Proven(f"all {len(asked)} parameters learn", "a finite gradient that is not zero, at this loss", 1, notes)


def _no_such(pattern: str, names: list[str]) -> UnknownName:
    """A pattern that fits nothing is a slip of the pen: what it was meant for would be tested, or its neighbor not."""
    known = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    return UnknownName(f"frozen={pattern!r} fits no parameter", f"there is {known}", "write a name, or a pattern as 'layer.*'")


def _named(answers: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(answers, Mapping):
        for key, one in answers.items():
            yield from _named(one, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(answers, (list, tuple)):
        for place, one in enumerate(answers):
            yield from _named(one, f"{prefix}[{place}]")
    else:
        yield prefix, answers


def _fault(one: Any) -> str:
    try:
        g = numbers(one)
    except GradientCut as cut:
        return f"the gradient is cut: {cut.where}"
    except NoPath:
        return "no gradient path leads to it"
    except NotRecorded:
        return "it does not require grad"
    except NotDifferentiable as missing:
        return missing.what
    if not one.connected:
        return "the loss does not use it"
    if not np.isfinite(g).all():
        return f"{int((~np.isfinite(g)).sum())} of {g.size} gradients are NaN or infinite"
    return "" if np.any(g) else "its gradient is zero everywhere"


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
        u = probe.weights()
        (g,) = probe.pull([u])
        if probe.cut:
            raise Undecided("f has no backward to compare", probe.cut, "let gradients through, or test the part behind")
        v = random.standard_normal(run.x.shape)
        told, measured, error = float((g * v).sum()), *slopes.along(u, v)
        size = max(abs(told), abs(measured), 1e-300)
        if abs(told - measured) > error + 8 * precision(run.x) * float(np.abs(g * v).sum()):
            raise _wrong_backward(run, slopes, u, g, v)
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


def _wrong_backward(run: Run, slopes: Slopes, u: Numbers, g: Numbers, v: Numbers) -> Failed | Undecided:
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
    # within two steps a smooth function bends less than 5 % of its larger slope
    if abs(after - before) > 0.05 * max(abs(before), abs(after)) and min(before, after) <= g[column] <= max(before, after):
        return Undecided(
            f"f has a kink at x{list(column) if column else ''}",
            f"its slope is {before:.6g} before it and {after:.6g} after it, and the backward says {float(g[column]):.6g}",
            "every number between the two is right there: give an x beside it",
        )
    return Failed(
        f"the backward is wrong at x{list(column) if column else ''}: "
        f"it says {float(g[column]):.6g}, the function itself {measured:.6g}",
        "both for the same random combination of all outputs" + _custom_lines(run),
        "ask wrt.check(f, x) which operation it is, and look at its backward",
    ).at(None, column, float(g[column]))


def _custom_lines(run: Run) -> str:
    custom = [node for node in run.trace.graph if node.gradient == "custom" and node.where is not None]
    lines = dict.fromkeys(f"{node.where}  {node.where.text}" for node in custom if node.where)
    return "".join(f"\n    custom backward at {line}" for line in lines)
