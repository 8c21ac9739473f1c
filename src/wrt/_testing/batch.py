"""`assert_batch_independent`: no sample of a batch depends on another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import wrt
from wrt._testing.birth import birth
from wrt._testing.points import changes, most_changed, others
from wrt._testing.probe import Probe, along, carries
from wrt._testing.run import Run, Subject
from wrt._testing.settings import settings
from wrt._testing.verdict import Failed, Proven, Undecided, assertion
from wrt.extend import numbers, precision, tensor_like

Half = npt.NDArray[np.bool_]


@assertion
def assert_batch_independent(
    model: Callable[..., Any],
    x: Any,
    *more: Any,
    axis: int = 0,
    output: Callable[[Any], Any] | None = None,
    points: int | None = None,
    **keywords: Any,
) -> Proven:
    """Sample i of the output depends on sample i of the input only.

    Two samples differ in some bit of their number: for each bit, one random pull from the samples that have it must be
    zero at all that do not, and the other way round. So every pair is looked at, in 2 log2(batch) pulls.

    >>> import torch
    >>> assert_batch_independent(torch.nn.Linear(3, 2), torch.randn(4, 3)).passes > 0
    True
    """
    subject = Subject(model, more, keywords, output)
    fits = lambda y, x: len(y.shape) > axis and y.shape[axis] == x.shape[axis]
    run = subject.run(x, fits)
    if run.given.shape[axis] < 2:
        raise Undecided("a batch of one sample", f"x has shape {run.given.shape}", "give at least two samples")
    count = settings.points if points is None else points
    passes, notes = 0, set[str]()
    for k, moved in enumerate([None, *others(run.given, count - 1, settings.seed)]):
        here = run if k == 0 else subject.run(moved, fits)
        passes += _by_gradient(here, model, axis, notes)
    runs = _by_value(subject, run, fits, axis)
    passes += runs
    proof = f"every pair of {run.given.shape[axis]} samples, by derivatives at {count} inputs and {runs} changes of values"
    return Proven(f"samples along axis {axis} are independent ({mode(model)})", proof, passes, tuple(sorted(notes)))


def mode(model: Any) -> str:
    training = getattr(model, "training", None)
    return "mode not known" if not isinstance(training, bool) else "train mode" if training else "eval mode"


def _halves(count: int) -> Iterator[Half]:
    """Sets of samples such that any two samples are told apart by some set, in both directions."""
    number = np.arange(count)
    for bit in range(max(1, (count - 1).bit_length())):
        has = (number >> bit) & 1 == 1
        yield has
        yield ~has


def _by_gradient(run: Run, model: Any, axis: int, notes: set[str]) -> int:
    probe = Probe(run.y, run.x, settings.seed)
    halves = [half for half in _halves(run.x.shape[axis]) if half.any()]
    weights = [probe.weights(along(run.y.shape, axis, half)) for half in halves]
    for half, u, g in zip(halves, weights, probe.pull(weights), strict=True):
        foreign = along(run.x.shape, axis, ~half)
        if np.any(g[foreign] != 0):
            if probe.true_leak(u, g, foreign):
                raise _failed(run, probe, model, axis, half, g)
            notes.add("gradients at other samples were roundoff: they did not scale with their weights")
    if probe.cut:
        notes.add(f"the gradient is cut ({probe.cut}): only the change of values speaks for what lies before")
    return probe.passes


def _failed(run: Run, probe: Probe, model: Any, axis: int, half: Half, g: Any) -> Failed:
    foreign = along(run.x.shape, axis, ~half)
    column = tuple(int(k) for k in np.unravel_index(int(np.argmax(np.where(foreign, np.abs(g), -1))), g.shape))
    rows = along(run.y.shape, axis, half)
    output, value = probe.element(rows, column)

    def leaks(handle: wrt.Handle) -> bool:
        (passed_on,) = Probe(run.y, handle).pull([probe.weights(rows)])
        return carries(handle, run.x, np.where(along(handle.shape, axis, half), passed_on, 0), foreign)

    born = birth(run, lambda h: len(h.shape) > axis and h.shape[axis] == run.x.shape[axis], leaks)
    return Failed(
        f"output sample {output[axis]} depends on input sample {column[axis]}: "
        f"d(y){list(output)} / d(x){list(column)} = {value:.3g}",
        str(born),
        _remedy(model, born.name, born.module),
    ).at(output, column, value)


def _remedy(model: Any, *names: str) -> str:
    """What mixes a batch, by the kind of the layer in which it was first seen."""
    parts = dict(model.named_modules()) if hasattr(model, "named_modules") else {}
    parts |= {one.name: one for one in getattr(model, "layers", ()) if hasattr(one, "name")}
    for name in names:
        kind = type(parts.get(name)).__name__
        if "BatchNorm" in kind:  # it mixes in train mode only, and here it mixed
            return (
                f"{name} is a {kind} in train mode, which mixes the batch by its design: "
                "test the model in eval mode, or normalize each sample (GroupNorm, LayerNorm)"
            )
    return "samples must not meet: look for a reduction, a reshape or an index over the batch axis there"


def _by_value(subject: Subject, run: Run, fits: Callable[..., bool], axis: int) -> int:
    """Replace every other sample; the rest must stay."""
    x = numbers(run.given)
    before = numbers(run.y).astype(np.float64)
    random = np.random.default_rng(settings.seed)
    odd = np.arange(x.shape[axis]) % 2 == 1
    runs = 0
    for half in (odd, ~odd):
        for moved in changes(x, along(x.shape, axis, half), random):
            runs += 1
            after = numbers(subject.run(tensor_like(moved, run.given), fits).y).astype(np.float64)
            output = most_changed(before, after, along(before.shape, axis, ~half), precision(run.y))
            if output is not None:
                raise _changed(output, axis, abs(float(after[output] - before[output])))
    return runs


def _changed(output: tuple[int, ...], axis: int, difference: float) -> Failed:
    return Failed(
        f"output sample {output[axis]} changes by {difference:.3g} when only other samples change",
        "its derivative is zero there: a decision (a mask, argmax, sorting) or a detached value carries it",
        "samples must not meet: look for a reduction or an index over the batch axis",
    ).at(output, None, difference)
