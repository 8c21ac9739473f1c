"""`wrt.steer`: change the input so that a hidden unit, an output or any scalar of named values moves as asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from wrt._notation.again import kept
from wrt._notation.d import d
from wrt._notation.trace import Handle, Trace, trace
from wrt._run.progress import Progress
from wrt._study.tensors import Finder, Numbers, finder, is_float, numbers, precision, tensor_like
from wrt.errors import NotDifferentiable, WrongQuery

Way = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class Steered:
    """The new input, the value before and after, every value on the way; true when it moved as asked."""

    input: Any
    before: float
    after: float
    path: tuple[float, ...]
    moved: bool
    words: str
    change: float
    others: float | None = None

    def __bool__(self) -> bool:
        return self.moved

    def __repr__(self) -> str:
        return self.words


@dataclass(slots=True)
class _Course:
    """The question: what is to move where, and how far the input may go."""

    model: Callable[..., Any]
    more: tuple[Any, ...]
    keywords: dict[str, Any]
    target: Target
    to: Way | float
    still: list[Finder]
    firmness: float
    start: list[Numbers] = field(default_factory=list)

    def run(self, x: Any) -> Trace:
        with kept(self.model):
            return trace(self.model, x, *self.more, values=True, **self.keywords)

    def sign(self, value: float) -> float:
        if isinstance(self.to, str):
            return 1.0 if self.to == "up" else -1.0
        return 1.0 if self.to >= value else -1.0

    def has_reached(self, value: float, epsilon: float) -> bool:
        return not isinstance(self.to, str) and abs(value - self.to) <= 8 * epsilon * max(1.0, abs(value))

    def distance_of_still(self, run: Trace) -> float:
        """How far the values that are to stay have moved, at most."""
        moved = [np.abs(numbers(f(run)) - s).max(initial=0.0) for f, s in zip(self.still, self.start)]
        return float(max(moved, default=0.0))

    def merit(self, run: Trace, value: float) -> float:
        """What every accepted step improves."""
        gain = self.sign(value) * value if isinstance(self.to, str) else -abs(value - self.to)
        paid = sum(float(((numbers(f(run)) - s) ** 2).sum()) for f, s in zip(self.still, self.start))
        return gain - self.firmness * paid

    def uphill(self, run: Trace, value: float) -> Numbers:
        """The gradient of what is asked for, less what would move the values that are to stay."""
        x = run.inputs[0]
        g = self.sign(value) * self.target.gradient(run, x)
        for find, start in zip(self.still, self.start):
            kept_still = find(run)
            moved = numbers(kept_still).astype(np.float64) - start
            J = d(kept_still) / d(x)
            if int(np.prod(kept_still.shape)) <= 64:
                g = _without(g, numbers(J).reshape(-1, g.size))
            if np.any(moved):
                g = g - 2 * self.firmness * numbers(moved @ J).astype(np.float64)
        return g


def steer(
    model: Callable[..., Any], x: Any, *more: Any, toward: Any, to: Way | float = "up", eps: float = 0.1, norm: Norm = "inf",
    steps: int = 1, step: float | None = None, bounds: tuple[float, float] | None = None, still: Sequence[Any] = (),
    firmness: float = 10.0, **keywords: Any,
) -> Steered:  # fmt: skip
    """Change x, by at most `eps` in the given norm, so that `toward` goes "up", "down", or to a value.

    One step is the fast gradient (its sign for norm "inf"); more are projected iterations, and a step that leads astray
    is halved. `toward` is a handle of an earlier run of the model, a name, or a function of the run; `still` lists values
    that are to stay what they are. `bounds` keeps every element of the input within two numbers.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    >>> x = torch.randn(1, 3)
    >>> bool(steer(model, x, toward="1", steps=10))
    True
    """
    course = _Course(model, more, keywords, target(toward), to, [finder(one) for one in still], firmness)
    run = course.run(x)
    given = run.inputs[0]
    if not is_float(given):
        raise NotDifferentiable(
            "the input has no direction to go", f"it is of {given.dtype}", "steer the embedding of the token ids"
        )
    course.start = [numbers(find(run)).astype(np.float64) for find in course.still]
    start = numbers(given).astype(np.float64)
    _check(start, norm, steps, bounds)
    room = _Room(start, norm, eps, bounds)
    first = _Stop(start, run, course.target.value(run))
    if steps == 1:
        last, why = _next(course, room, first, step or eps, patience=1)
        path = [first, last]
    else:
        path, why = _walk(course, room, first, steps, step or 2.5 * eps / steps)
    return _result(course, room, path, why)


@dataclass(frozen=True, slots=True)
class _Stop:
    """One input on the way, with its run and the value of the target."""

    x: Numbers
    run: Trace
    value: float


@dataclass(frozen=True, slots=True)
class _Room:
    """Where the input may go."""

    start: Numbers
    norm: Norm
    eps: float
    bounds: tuple[float, float] | None

    def inside(self, x: Numbers) -> Numbers:
        near = self.start + nearest(x - self.start, self.eps, self.norm)
        return near if self.bounds is None else np.clip(near, *self.bounds)


def _walk(course: _Course, room: _Room, first: _Stop, steps: int, size: float) -> tuple[list[_Stop], str]:
    """Steps that each improve; ends early where there is none, or where the value is reached."""
    path, why = [first], ""
    with Progress(f"steering {course.target.words}", steps) as progress:
        for _ in range(steps):
            there, why = _next(course, room, path[-1], size, patience=8)
            if course.merit(there.run, there.value) <= course.merit(path[-1].run, path[-1].value):
                why = why or "no step that improves it was found"
                break
            path.append(there)
            progress.advance(1)
            if course.has_reached(there.value, precision(there.run.inputs[0])):
                break
    return path, why


def _next(course: _Course, room: _Room, here: _Stop, size: float, *, patience: int) -> tuple[_Stop, str]:
    """One step along the gradient, halved where it leads astray, and a reason where there is none."""
    g = course.uphill(here.run, here.value)
    if not np.isfinite(g).all():
        return here, "its gradient is not finite there"
    if not np.any(g):
        return here, "its gradient is zero there"
    reach = size if isinstance(course.to, str) else min(size, abs(course.to - here.value) / climb(g, room.norm))
    there = here
    for _ in range(patience):
        x = room.inside(here.x + reach * steepest(g, room.norm))
        run = course.run(tensor_like(x, here.run.inputs[0]))
        there = _Stop(x, run, course.target.value(run))
        if course.merit(run, there.value) > course.merit(here.run, here.value):
            break
        reach /= 2
    return there, ""


def _result(course: _Course, room: _Room, path: list[_Stop], why: str) -> Steered:
    """The last stop, and in words whether it is what was asked for."""
    before, last = path[0].value, path[-1]
    after, given = last.value, last.run.inputs[0]
    noise = 4 * precision(given) * max(abs(before), abs(after))
    moved = course.sign(before) * (after - before) > noise
    if not isinstance(course.to, str):
        moved = abs(after - course.to) < abs(before - course.to) or course.has_reached(after, precision(given))
    change = length(last.x - room.start, room.norm)
    asked = course.to if isinstance(course.to, str) else f"to {course.to:g}"
    words = f"{course.target.words} went from {before:.6g} to {after:.6g}, asked to go {asked}; "
    words += f"the input moved by {change:.3g} of {room.eps:g} in norm {room.norm}"
    if not moved:
        words = f"it did NOT move as asked: {words}; {why or 'try a smaller eps, or more steps'}"
    elif not isinstance(course.to, str) and abs(after - course.to) > 1e-3 * max(1.0, abs(course.to)):
        words += "; the value itself was not reached"
    others = course.distance_of_still(last.run) if course.still else None
    if others is not None:
        words += f"; what was to stay moved by {others:.3g} at most"
    return Steered(given.value, before, after, tuple(stop.value for stop in path), bool(moved), words, change, others)


def _without(g: Numbers, rows: Numbers) -> Numbers:
    """g without its part in the span of some rows."""
    along, *_ = np.linalg.lstsq(rows.T.astype(np.float64), g.reshape(-1), rcond=None)
    left = g - (rows.T @ along).reshape(g.shape)
    return left if np.abs(left).max() > 1e-10 * np.abs(g).max() else g


def _check(x: Numbers, norm: Any, steps: int, bounds: Any) -> None:
    if norm not in ("inf", 2, 1):
        raise WrongQuery(f"norm={norm!r}", "steps are known in three norms", 'write norm="inf", norm=2 or norm=1')
    if steps < 1:
        raise WrongQuery(f"steps={steps}", "no step moves nothing", "write steps=1 for one signed step, or more")
    if bounds is not None and (x.min() < bounds[0] or x.max() > bounds[1]):
        raise WrongQuery(
            f"bounds={bounds}", f"the input goes from {x.min():.6g} to {x.max():.6g}", "give bounds that hold the input"
        )


Norm: TypeAlias = Literal["inf", 2, 1]


def steepest(g: Numbers, norm: Norm) -> Numbers:
    """The step of length one that climbs fastest along a gradient.

    >>> steepest(np.array([3.0, -4.0]), "inf").tolist(), steepest(np.array([3.0, -4.0]), 1).tolist()
    ([1.0, -1.0], [0.0, -1.0])
    """
    if norm == "inf":
        return np.sign(g)
    if norm == 2:
        return g / max(float(np.linalg.norm(g)), 1e-300)
    step = np.zeros(g.shape)
    largest = np.unravel_index(int(np.abs(g).argmax()), g.shape)
    step[largest] = np.sign(g[largest])
    return step


def climb(g: Numbers, norm: Norm) -> float:
    """How much that step climbs: the dual norm of the gradient."""
    return float((g * steepest(g, norm)).sum())


def length(v: Numbers, norm: Norm) -> float:
    flat = v.reshape(-1)
    return float(np.linalg.norm(flat, np.inf if norm == "inf" else norm)) if flat.size else 0.0


def nearest(v: Numbers, radius: float, norm: Norm) -> Numbers:
    """The nearest point of the ball around zero.

    >>> nearest(np.array([3.0, 1.0]), 2.0, 1).tolist()
    [2.0, 0.0]
    """
    if norm == "inf":
        return np.clip(v, -radius, radius)
    if norm == 2:
        return v * min(1.0, radius / max(length(v, 2), 1e-300))
    return v if length(v, 1) <= radius else _on_the_simplex(v, radius)


def _on_the_simplex(v: Numbers, radius: float) -> Numbers:
    """All entries shrink by the same amount, as far as zero: the amount that makes their sum the radius."""
    sizes = np.sort(np.abs(v).reshape(-1))[::-1]
    excess = (np.cumsum(sizes) - radius) / np.arange(1, len(sizes) + 1)
    shrink = float(excess[np.flatnonzero(sizes > excess)[-1]])
    shrunk: Numbers = np.sign(v) * np.maximum(np.abs(v) - shrink, 0.0)
    return shrunk


@dataclass(frozen=True, slots=True)
class Target:
    """Terms of a weighted sum; each finds its handle in a new run. A handle of many elements stands for their sum."""

    terms: tuple[tuple[float, Finder], ...]
    words: str

    def value(self, run: Trace) -> float:
        return float(sum(weight * numbers(find(run)).astype(np.float64).sum() for weight, find in self.terms))

    def gradient(self, run: Trace, x: Handle) -> Numbers:
        """With respect to a handle of the same run, in its shape; one pull for each term."""
        total = np.zeros(x.shape)
        for weight, find in self.terms:
            handle = find(run)
            total = total + numbers(np.full(handle.shape, weight) @ (d(handle) / d(x))).astype(np.float64)
        return total


def target(asked: Any) -> Target:
    """Read what a user may mean by a target: a handle, a name, a function of the run, or weights of handles."""
    if isinstance(asked, Mapping):
        terms = tuple((float(weight), finder(one)) for one, weight in asked.items())
        return Target(terms, " + ".join(f"{weight:g} {_target_words(one)}" for one, weight in asked.items()))
    return Target(((1.0, finder(asked)),), _target_words(asked))


def _target_words(asked: Any) -> str:
    if isinstance(asked, Handle):
        _, elements = asked.__wrt_differential__()
        index = "" if elements.everything else f"[{_element_words(elements)}]"
        return f"{asked.name or 'output'}{index}"
    return asked if isinstance(asked, str) else "the target" if callable(asked) else f"output[{asked}]"


def _element_words(elements: Any) -> str:
    if elements.size == 1:
        return ", ".join(str(int(k)) for k in np.unravel_index(int(elements.positions[0]), elements.of))
    return f"{elements.size} elements"
