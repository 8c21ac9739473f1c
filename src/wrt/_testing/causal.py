"""`assert_causal`: no output position depends on a later input position."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

import wrt
from wrt._testing.birth import birth
from wrt._testing.points import changes, most_changed, others
from wrt._testing.probe import Probe, along, carries
from wrt._testing.run import Run, Subject
from wrt._testing.settings import settings
from wrt._testing.verdict import Failed, Proven, Undecided, assertion
from wrt.extend import numbers, precision, tensor_like

ALL = 48  # boundaries that are all probed
SOME = 20  # of more than that, evenly spread


@assertion
def assert_causal(
    model: Callable[..., Any],
    x: Any,
    *more: Any,
    axis: int = 1,
    output: Callable[[Any], Any] | None = None,
    points: int | None = None,
    positions: Iterable[int] | Literal["all"] | None = None,
    **keywords: Any,
) -> Proven:
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
    subject = Subject(model, more, keywords, output)
    fits = lambda y, x: len(y.shape) > axis and y.shape[axis] == x.shape[axis]
    run = subject.run(x, fits)
    length = run.given.shape[axis]
    if length < 2:
        raise Undecided("a sequence of one position", f"x has shape {run.given.shape}", "give at least two positions")
    boundaries = _boundaries(length, positions)
    count = settings.points if points is None else points
    passes, notes = 0, set[str]()
    for k in range(count):
        if k:
            (moved,) = others(run.given, 1, settings.seed + k)
            here = subject.run(moved, fits)
        else:
            here = run
        few = boundaries if k == 0 else boundaries[:: max(1, len(boundaries) // 4)]
        passes += _by_gradient(here, axis, few, notes)
    runs = _by_value(subject, run, fits, axis, boundaries)
    passes += runs
    proof = f"derivatives at {count} inputs ({_coverage(boundaries, length)}) and {runs} changes of later inputs"
    if run.embedded:
        proof += f", through the embedding {run.x.name}"
    return Proven(f"the output is causal along axis {axis}", proof, passes, tuple(sorted(notes)))


def _boundaries(length: int, positions: Iterable[int] | Literal["all"] | None) -> list[int]:
    if isinstance(positions, str) or (positions is None and length - 1 <= ALL):
        return list(range(length - 1))
    if positions is not None:
        return sorted({int(p) for p in positions if 0 <= p < length - 1})
    spread = np.linspace(1, length - 3, SOME - 2).round().astype(int)
    return sorted({0, length - 2, *map(int, spread)})


def _coverage(boundaries: list[int], length: int) -> str:
    """What was proven at the first input, exactly: a pair of positions is covered if a boundary lies between them."""
    if len(boundaries) == length - 1:
        return f"all {len(boundaries)} boundaries at the first"
    gap = max(np.diff([-1, *boundaries, length - 1]).tolist(), default=length)
    return f"{len(boundaries)} of {length - 1} boundaries at the first: all pairs at least {gap} apart"


def _by_gradient(run: Run, axis: int, boundaries: list[int], notes: set[str]) -> int:
    probe = Probe(run.y, run.x, settings.seed)
    place = np.arange(run.x.shape[axis])
    before = -1
    for start in range(0, len(boundaries), 8):
        some = boundaries[start : start + 8]
        weights = [probe.weights(along(run.y.shape, axis, np.arange(run.y.shape[axis]) <= t)) for t in some]
        for t, u, g in zip(some, weights, probe.pull(weights), strict=True):
            later = along(run.x.shape, axis, place > t)
            if np.any(g[later] != 0) and probe.true_leak(u, g, later):
                raise _failed(run, probe, axis, t, before, g)
            if np.any(g[later] != 0):
                notes.add("gradients at later positions were roundoff: they did not scale with their weights")
            before = t
    if probe.cut:
        notes.add(f"the gradient is cut ({probe.cut}): only the change of values speaks for what lies before")
    return probe.passes


def _failed(run: Run, probe: Probe, axis: int, t: int, before: int, g: Any) -> Failed:
    """Name the pair: the boundary below was clean, so the row lies between the two."""
    place = np.arange(run.x.shape[axis])
    later = along(run.x.shape, axis, place > t)
    column = tuple(int(k) for k in np.unravel_index(int(np.argmax(np.where(later, np.abs(g), -1))), g.shape))
    rows = along(run.y.shape, axis, (np.arange(run.y.shape[axis]) <= t) & (np.arange(run.y.shape[axis]) > before))
    output, value = probe.element(rows, column)

    def leaks(handle: wrt.Handle) -> bool:
        (passed_on,) = Probe(run.y, handle).pull([probe.weights(rows)])
        return carries(handle, run.x, np.where(along(handle.shape, axis, place <= t), passed_on, 0), later)

    alike = lambda h: len(h.shape) == len(run.x.shape) and h.shape[: axis + 1] == run.x.shape[: axis + 1]
    through = f" (through the embedding {run.x.name})" if run.embedded else ""
    return Failed(
        f"output position {output[axis]} depends on input position {column[axis]}{through}: "
        f"d(y){list(output)} / d(x){list(column)} = {value:.3g}",
        str(birth(run, alike, leaks)),
        f"causal means that position {output[axis]} sees positions 0 to {output[axis]} only: look at the mask, "
        "the padding or the shift there",
    ).at(output, column, value)


def _by_value(subject: Subject, run: Run, fits: Callable[..., bool], axis: int, boundaries: list[int]) -> int:
    """Replace later inputs; earlier outputs must stay what they are. Catches decisions, which have no derivative."""
    before = numbers(run.y).astype(np.float64)
    x = numbers(run.given)
    random = np.random.default_rng(settings.seed)
    few = sorted({boundaries[0], boundaries[len(boundaries) // 2], boundaries[-1]}) if boundaries else []
    runs = 0
    for t in few:
        earlier = along(before.shape, axis, np.arange(before.shape[axis]) <= t)
        for moved in changes(x, along(x.shape, axis, np.arange(x.shape[axis]) > t), random):
            runs += 1
            after = numbers(subject.run(tensor_like(moved, run.given), fits).y).astype(np.float64)
            output = most_changed(before, after, earlier, precision(run.y))
            if output is not None:
                raise _changed(output, axis, t, abs(float(after[output] - before[output])))
    return runs


def _changed(output: tuple[int, ...], axis: int, t: int, difference: float) -> Failed:
    return Failed(
        f"output position {output[axis]} changes by {difference:.3g} when inputs after {t} change",
        "its derivative is zero there: a decision (a mask, argmax, sorting, rounding) or a detached value carries it",
        f"causal means that position {output[axis]} sees positions 0 to {output[axis]} only",
    ).at(output, None, difference)
