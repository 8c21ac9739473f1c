"""The assertions: what depends on what, whether every parameter learns, whether a backward is right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, Literal

import numpy as np

import wrt
from wrt import d
from wrt._testing.probe import (
    Mask,
    Numbers,
    Origin,
    Probe,
    Run,
    Subject,
    along,
    changes,
    most_changed,
    name,
    origin,
    other_inputs,
)
from wrt._testing.verdict import Failed, Proven, Undecided, assertion, settings
from wrt.errors import GradientCut, NoPath, NotDifferentiable, NotRecorded, UnknownName
from wrt.extend import is_float, named, numbers, precision, tensor_like

# ---- two tensors, or elements of them ----


@assertion
def assert_depends(y: Any, x: Any) -> Proven:
    """y depends on x, structurally (a gradient path leads there) and numerically (its derivative is not zero here).

    >>> import torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> assert_depends(x.sum(), x)
    y depends on x
      a gradient path, and derivatives that are not zero at these numbers; 1 pass
    """
    names = name(y, "y"), name(x, "x")
    try:
        probe = Probe(y, x)
        g = numbers(probe.weights() @ probe.J)
    except (NoPath, NotRecorded) as missing:
        raise Failed(f"{names[0]} does not depend on {names[1]}: {missing.what}", missing.where, missing.write) from None
    probe.refuse_not_finite(g)
    if not np.any(g):
        path = "a gradient path leads there, but nothing comes through at these numbers"
        raise Failed(
            f"{names[0]} does not depend on {names[1]} here: every derivative is 0",
            path if probe.J.has_path else "no operation leads from one to the other",
            f"ask wrt.why({names[0]}, {names[1]}) where it is lost",
        )
    proof = "a gradient path, and derivatives that are not zero at these numbers"
    return Proven(f"{names[0]} depends on {names[1]}", proof, 1)


@assertion
def assert_independent(y: Any, x: Any) -> Proven:
    """No element of y depends on any element of x: `assert_independent(d(y)[:, 3], d(x)[:, 4:])`.

    Structural where no path leads from one to the other; otherwise numeric, at these numbers, by two random pulls.

    >>> import torch
    >>> from wrt import d
    >>> x = torch.randn(4, requires_grad=True)
    >>> y = x.cumsum(0)
    >>> assert_independent(d(y)[:2], d(x)[2:])
    y does not depend on x
      every derivative is zero at these numbers; 1 pass
    """
    names = name(y, "y"), name(x, "x")
    claim = f"{names[0]} does not depend on {names[1]}"
    try:
        probe = Probe(y, x)
        u = probe.weights()
        g = numbers(u @ probe.J).astype(np.float64)  # raises where the path is cut rather than absent
    except NotRecorded as missing:
        raise Undecided(f"{claim}: cannot tell", missing.what, missing.write) from None
    except NoPath as cut:
        raise Undecided(f"{claim} by its derivative, which says nothing here", cut.where, cut.write) from None
    if not probe.J.has_path:
        return Proven(claim, "structurally: no path leads from one to the other", 1)
    probe.refuse_not_finite(g)
    if not np.any(g):
        return Proven(claim, "every derivative is zero at these numbers", 1)
    everywhere = np.ones(g.shape, dtype=bool)
    if not probe.true_leak(u, g, everywhere):
        note = f"what came out ({np.abs(g).max():.1e}) was roundoff: it did not scale with its weights"
        return Proven(claim, "every derivative is zero at these numbers, up to roundoff", 2, (note,))
    output, column, value = probe.pair(g, np.ones(probe.rows, dtype=bool), everywhere)
    here, there = (f"{one}{list(at) if at else ''}" for one, at in zip(names, (output, column)))
    raise Failed(
        f"{here} depends on {there}: the derivative is {value:.3g}",
        "indices count within what was asked for",
        f"ask (d({names[0]}) / d({names[1]})).explain(), or record the run with wrt.trace to see its lines",
    ).at(output, column, value)


# ---- along one axis of a model's input and output ----


@dataclass(frozen=True, slots=True)
class Pair:
    """Output positions along an axis, and the input positions that none of them may see; `suspects` if one does."""

    outputs: Mask
    forbidden: Mask
    suspects: Mask


@dataclass(frozen=True, slots=True)
class Separation:
    """A model whose output positions along one axis must not see certain input positions."""

    subject: Subject
    axis: int
    others: str  # what must not be seen, in words
    seen: Callable[[Run, tuple[int, ...], tuple[int, ...], float, Origin], Failed]
    changed: Callable[[tuple[int, ...], float, Pair], Failed]
    alike: Callable[[wrt.Handle, wrt.Handle], bool]

    def run(self, x: Any) -> Run:
        return self.subject.run(x, lambda y, x: len(y.shape) > self.axis and y.shape[self.axis] == x.shape[self.axis])

    def by_gradient(self, run: Run, pairs: Sequence[Pair], notes: set[str]) -> int:
        """One random pull for each pair: from its outputs, zero at what is forbidden. Counts the passes."""
        probe = Probe(run.y, run.x, settings.seed)
        for start in range(0, len(pairs), 8):
            some = pairs[start : start + 8]
            weights = [probe.weights(along(run.y.shape, self.axis, one.outputs)) for one in some]
            for pair, u, g in zip(some, weights, probe.pull(weights), strict=True):
                forbidden = along(run.x.shape, self.axis, pair.forbidden)
                if np.any(g[forbidden] != 0):
                    if probe.true_leak(u, g, forbidden):
                        raise self._failure(run, probe, pair, g)
                    notes.add(f"gradients at {self.others} were roundoff: they did not scale with their weights")
        if probe.cut:
            notes.add(f"the gradient is cut ({probe.cut}): only the change of values speaks for what lies before")
        return probe.passes

    def _failure(self, run: Run, probe: Probe, pair: Pair, g: Numbers) -> Failed:
        rows, forbidden = along(run.y.shape, self.axis, pair.suspects), along(run.x.shape, self.axis, pair.forbidden)
        output, column, value = probe.pair(g, rows, forbidden)

        def leaks(handle: wrt.Handle) -> bool:
            """Whether what arrives at the allowed positions of this value goes on to forbidden elements of x."""
            (arrived,) = Probe(run.y, handle).pull([probe.weights(rows)])
            u, further = np.where(along(handle.shape, self.axis, pair.outputs), arrived, 0), Probe(handle, run.x)
            (g,) = further.pull([u])
            return bool(np.any(g[forbidden] != 0)) and further.true_leak(u, g, forbidden)

        return self.seen(run, output, column, value, origin(run, lambda h: self.alike(h, run.x), leaks)).at(output, column, value)

    def by_value(self, run: Run, pairs: Sequence[Pair]) -> int:
        """Replace what is forbidden; the outputs must stay. Catches decisions, which have no derivative. Counts the runs."""
        x, before = numbers(run.given), numbers(run.y).astype(np.float64)
        random = np.random.default_rng(settings.seed)
        runs = 0
        for pair in pairs:
            for moved in changes(x, along(x.shape, self.axis, pair.forbidden), random):
                runs += 1
                after = numbers(self.run(tensor_like(moved, run.given)).y).astype(np.float64)
                output = most_changed(before, after, along(before.shape, self.axis, pair.outputs), precision(run.y))
                if output is not None:
                    difference = abs(float(after[output] - before[output]))
                    raise self.changed(output, difference, pair).at(output, None, difference)
        return runs


@assertion
def assert_causal(
    model: Callable[..., Any], x: Any, *more: Any, axis: int = 1, output: Callable[[Any], Any] | None = None,
    points: int | None = None, positions: Iterable[int] | Literal["all"] | None = None, **keywords: Any,
) -> Proven:  # fmt: skip
    """Output position t along `axis` depends on input positions up to t only.

    Proven by derivatives at several inputs: for each boundary t one pull of a random combination of all outputs up to t,
    whose gradient must be exactly zero after t (roundoff is told apart). And by value: at three boundaries inputs after t are
    replaced by near and by far ones, and outputs up to t must stay; a decision (argmax, rounding) that none of these changes
    is not seen. A leak from j to i is seen at every boundary between them. Up to 48 boundaries are all probed; of more, 20
    that lie evenly, so that every leak over a longer distance than their gap is still found for certain.
    `positions="all"` probes each, `positions=[...]` those you name.

    There is no shortcut to all of them: a pull from several rows shows a column only what they add up to, and of two
    neighbors the later row may depend on what the earlier one must not. So each boundary takes a pull of its own.

    >>> import torch
    >>> assert_causal(lambda x: x.cumsum(1), torch.randn(2, 5, 3)).passes > 0
    True
    """

    def seen(run: Run, output: tuple[int, ...], column: tuple[int, ...], value: float, born: Origin) -> Failed:
        through = f" (through the embedding {run.x.name})" if run.embedded else ""
        return Failed(
            f"output position {output[axis]} depends on input position {column[axis]}{through}: "
            f"d(y){list(output)} / d(x){list(column)} = {value:.3g}",
            str(born),
            f"causal means that position {output[axis]} sees positions 0 to {output[axis]} only: look at the mask, "
            "the padding or the shift there",
        )

    def changed(output: tuple[int, ...], difference: float, pair: Pair) -> Failed:
        return Failed(
            f"output position {output[axis]} changes by {difference:.3g} when inputs after {int(pair.outputs.sum()) - 1} change",
            "its derivative is zero there: a decision (a mask, argmax, sorting, rounding) or a detached value carries it",
            f"causal means that position {output[axis]} sees positions 0 to {output[axis]} only",
        )

    alike = lambda h, x: len(h.shape) == len(x.shape) and h.shape[: axis + 1] == x.shape[: axis + 1]
    separation = Separation(Subject(model, more, keywords, output), axis, "later positions", seen, changed, alike)
    run = separation.run(x)
    length = run.given.shape[axis]
    if length < 2:
        raise Undecided("a sequence of one position", f"x has shape {run.given.shape}", "give at least two positions")
    boundaries = _boundaries(length, positions)
    place = np.arange(length)
    pairs = [Pair(place <= t, place > t, (place <= t) & (place > last)) for last, t in zip([-1, *boundaries], boundaries)]
    count, notes = settings.points if points is None else points, set[str]()
    passes = separation.by_gradient(run, pairs, notes)
    every = max(1, len(boundaries) // 4)
    few = [Pair(one.outputs, one.forbidden, one.outputs) for one in pairs[::every]]
    for moved in other_inputs(run.given, count - 1, settings.seed + 1):
        passes += separation.by_gradient(separation.run(moved), few, notes)
    runs = separation.by_value(run, [pairs[k] for k in sorted({0, len(pairs) // 2, len(pairs) - 1})] if pairs else [])
    proof = f"derivatives at {count} inputs ({_coverage(boundaries, length)}) and {runs} changes of later inputs"
    if run.embedded:
        proof += f", through the embedding {run.x.name}"
    return Proven(f"the output is causal along axis {axis}", proof, passes + runs, tuple(sorted(notes)))


def _boundaries(length: int, positions: Iterable[int] | Literal["all"] | None) -> list[int]:
    """Up to 48 boundaries are all probed, of more 20 that lie evenly."""
    if isinstance(positions, str) or (positions is None and length - 1 <= 48):
        return list(range(length - 1))
    if positions is not None:
        return sorted({int(p) for p in positions if 0 <= p < length - 1})
    return sorted({0, length - 2, *map(int, np.linspace(1, length - 3, 18).round())})


def _coverage(boundaries: list[int], length: int) -> str:
    """What was proven at the first input, exactly: a pair of positions is covered if a boundary lies between them."""
    if len(boundaries) == length - 1:
        return f"all {len(boundaries)} boundaries at the first"
    gap = max(np.diff([-1, *boundaries, length - 1]).tolist(), default=length)
    return f"{len(boundaries)} of {length - 1} boundaries at the first: all pairs at least {gap} apart"


@assertion
def assert_batch_independent(
    model: Callable[..., Any], x: Any, *more: Any, axis: int = 0, output: Callable[[Any], Any] | None = None,
    points: int | None = None, **keywords: Any,
) -> Proven:  # fmt: skip
    """Sample i of the output depends on sample i of the input only.

    Two samples differ in some bit of their number: for each bit, one random pull from the samples that have it must be
    zero at all that do not, and the other way round. So every pair is looked at, in 2 log2(batch) pulls.

    >>> import torch
    >>> assert_batch_independent(torch.nn.Linear(3, 2), torch.randn(4, 3)).passes > 0
    True
    """

    def seen(run: Run, output: tuple[int, ...], column: tuple[int, ...], value: float, born: Origin) -> Failed:
        return Failed(
            f"output sample {output[axis]} depends on input sample {column[axis]}: "
            f"d(y){list(output)} / d(x){list(column)} = {value:.3g}",
            str(born),
            _remedy(model, born.name, born.module),
        )

    def changed(output: tuple[int, ...], difference: float, pair: Pair) -> Failed:
        return Failed(
            f"output sample {output[axis]} changes by {difference:.3g} when only other samples change",
            "its derivative is zero there: a decision (a mask, argmax, sorting) or a detached value carries it",
            "samples must not meet: look for a reduction or an index over the batch axis",
        )

    alike = lambda h, x: len(h.shape) > axis and h.shape[axis] == x.shape[axis]
    separation = Separation(Subject(model, more, keywords, output), axis, "other samples", seen, changed, alike)
    run = separation.run(x)
    size = run.given.shape[axis]
    if size < 2:
        raise Undecided("a batch of one sample", f"x has shape {run.given.shape}", "give at least two samples")
    pairs = [Pair(half, ~half, half) for half in _halves(size)]
    count, notes = settings.points if points is None else points, set[str]()
    passes = separation.by_gradient(run, pairs, notes)
    for moved in other_inputs(run.given, count - 1, settings.seed):
        passes += separation.by_gradient(separation.run(moved), pairs, notes)
    odd = np.arange(size) % 2 == 1
    runs = separation.by_value(run, [Pair(~half, half, ~half) for half in (odd, ~odd)])
    proof = f"every pair of {size} samples, by derivatives at {count} inputs and {runs} changes of values"
    return Proven(f"samples along axis {axis} are independent ({_mode(model)})", proof, passes + runs, tuple(sorted(notes)))


def _mode(model: Any) -> str:
    training = getattr(model, "training", None)
    return "mode not known" if not isinstance(training, bool) else "train mode" if training else "eval mode"


def _halves(count: int) -> Iterator[Mask]:
    """Sets of samples such that any two samples are told apart by some set, in both directions."""
    number = np.arange(count)
    for bit in range((count - 1).bit_length()):
        has = (number >> bit) & 1 == 1
        yield has
        yield ~has


def _remedy(model: Any, *names: str) -> str:
    """What mixes a batch, by the kind of the layer in which it was first seen."""
    parts = dict(model.named_modules()) if hasattr(model, "named_modules") else {}
    parts |= {one.name: one for one in getattr(model, "layers", ()) if hasattr(one, "name")}
    for layer in names:
        kind = type(parts.get(layer)).__name__
        if "BatchNorm" in kind:  # it mixes in train mode only, and here it mixed
            return (
                f"{layer} is a {kind} in train mode, which mixes the batch by its design: "
                "test the model in eval mode, or normalize each sample (GroupNorm, LayerNorm)"
            )
    return "samples must not meet: look for a reduction, a reshape or an index over the batch axis there"


# ---- receptive fields ----


@assertion
def assert_receptive_field(
    model: Callable[..., Any], x: Any, *more: Any, at: int | Sequence[int], size: int | Sequence[int],
    axes: Sequence[int] | None = None, **keywords: Any,
) -> Proven:  # fmt: skip
    """The output at a position can see exactly `size` positions of the input along each axis.

    >>> import torch
    >>> bool(assert_receptive_field(torch.nn.Conv2d(1, 1, 3), torch.zeros(1, 1, 9, 9), at=(3, 3), size=3))
    True
    """
    field = wrt.receptive_field(model, x, at, *more, axes=axes, **keywords)
    sizes = field.theoretical
    expected = (size,) * len(sizes) if isinstance(size, int) else tuple(size)
    sees, meant = (" x ".join(map(str, one)) for one in (sizes, expected))
    if sizes != expected:
        layers = "".join(f"\n    {one}" for one in field.layers)
        raise Failed(
            f"output {list(field.at)} can see {sees} of the input, not {meant}",
            f"from the output back:{layers}",
            "look for the layer whose kernel, stride, dilation or padding is not what you meant",
        )
    proof = f"layer by layer through {len(field.layers) - 1} places, at random inputs"
    return Proven(f"output {list(field.at)} can see {sees} of the input", proof, len(field.layers))


# ---- training ----


@assertion
def assert_all_parameters_learn(loss: Any, model: Any, *, frozen: Sequence[str] = ()) -> Proven:
    """Every parameter of the model gets a gradient of this loss that is there, finite and not zero.

    `frozen` names those that are meant to rest, as patterns: frozen=["backbone.*"]. One shared pass for all of them.

    >>> import torch
    >>> model = torch.nn.Linear(3, 2)
    >>> assert_all_parameters_learn(model(torch.ones(1, 3)).sum(), model).claim
    'all 2 parameters learn'
    """
    found = dict(named(d(loss) / d(model)))
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
    if not one.has_path:
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
