"""One operation against itself: its own backward, and central differences of its forward in double precision.

First along a random direction through all of an input, which no wrong element escapes; then, where the two disagree, by
halves down to the element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from wrt._core.evidence import Again, Evidence, Numbers
from wrt._core.graph import Node
from wrt._core.protocol import random_signs

FEW = 48
"""Inputs of so many elements are looked at one by one."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """What an operation's own backward made of one seed."""

    weights: list[Numbers | None]
    gradients: list[Numbers | None]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where the backward and the forward disagree: input, element, the number expected and the number returned."""

    node: Node
    again: Again
    place: int
    element: tuple[int, ...]
    expected: float
    returned: float
    said: str = ""

    @property
    def words(self) -> str:
        name = self.again.custom or self.node.op
        if self.said:
            return f"{name}, input {self.place}: {self.said}"
        at = f"[{', '.join(map(str, self.element))}]" if self.element else ""
        return (
            f"{name}, input {self.place}{at}: central differences give {self.expected:.6g}, "
            f"its backward returns {self.returned:.6g}"
        )


def pulls(evidence: Evidence, node: Node, seeds: list[Numbers | None] | None = None) -> list[Pulled]:
    """The backward, asked before anything is run again: some keep what they need where the next run overwrites it."""
    shapes = [evidence.graph.tensors[k].shape for k in node.outputs]
    found = []
    for round_ in range(2):
        given: list[Numbers | None] = [_random(s, 11 + round_) for s in shapes]
        if round_ == 0 and seeds is not None:
            given = seeds
        try:
            found.append(Pulled(given, evidence.local(node, given)))
        except Exception:
            return []
    return found


def mismatch(evidence: Evidence, node: Node, again: Again, pulled: list[Pulled]) -> Mismatch | None:
    """The largest disagreement of a backward with its forward; None where they agree or nobody can tell."""
    try:
        here = again.run(again.inputs)
    except Exception:
        return None
    if not _is_the_same_run(evidence, node, here):
        return None
    if getattr(again.run, "narrow", False):
        if not again.custom:
            return None  # a cast: its forward has no more digits than its backward
        again = replace(again, precision=1.2e-7)
    worst: Mismatch | None = None
    for one in pulled:
        weights = [
            w if w is not None and h is not None and w.shape == h.shape else None for w, h in zip(one.weights, here, strict=False)
        ]
        for place, number in enumerate(again.numbers):
            returned = one.gradients[node.inputs.index(number)]
            found = _input(evidence, node, again, place, weights, returned)
            worst = found if worst is None or (found is not None and _size(found) > _size(worst)) else worst
    return worst


def _size(found: Mismatch) -> float:
    return abs(found.expected - found.returned)


def _is_the_same_run(evidence: Evidence, node: Node, here: Sequence[Numbers | None]) -> bool:
    """Random operations and those with a memory give something else when run again: nothing to compare with."""
    if len(here) < len(node.outputs):
        return False
    for output, again in zip(node.outputs, here, strict=False):
        before = evidence.value(output)
        if before is None or again is None:
            continue
        if before.shape != again.shape or not np.allclose(before, again, rtol=2e-2, atol=1e-3, equal_nan=True):
            return False
    return True


def _input(
    evidence: Evidence, node: Node, again: Again, place: int, weights: list[Numbers | None], returned: Numbers | None
) -> Mismatch | None:
    base = again.inputs[place]
    if returned is None or not base.size or node.inputs.count(again.numbers[place]) > 1:
        return None
    if returned.shape != base.shape:
        said = f"its backward returns the shape {returned.shape}, the input has {base.shape}"
        return Mismatch(node, again, place, (), float("inf"), 0.0, said)
    if not np.all(np.isfinite(returned)):
        return None
    probe = _Probe(evidence, node, again, place, weights, returned)
    if base.size > FEW:
        whole = probe.disagrees(np.arange(base.size))
        return probe.narrowed(np.arange(base.size)) if whole else None
    found = [probe.at(k) for k in range(base.size)]
    return max((f for f in found if f is not None), key=_size, default=None)


class _Probe:
    """Differences of one input of one operation."""

    def __init__(
        self, evidence: Evidence, node: Node, again: Again, place: int, weights: list[Numbers | None], returned: Numbers
    ) -> None:
        self.node, self.again, self.place, self.weights = node, again, place, weights
        self.returned = returned.reshape(-1)
        base = again.inputs[place]
        self.step = again.precision ** (1 / 3) * max(1.0, float(np.max(np.abs(base))))
        self.directions = random_signs(1, base.size, 23)[0]
        self.tolerance = _tolerance(evidence, node, again)

    def disagrees(self, elements: npt.NDArray[np.int64]) -> bool:
        """Whether moving these elements together changes the output otherwise than the backward says."""
        nudge = np.zeros(self.directions.size)
        nudge[elements] = self.directions[elements]
        slopes = self._slopes(nudge)
        if slopes is None:
            return len(elements) > 1  # a kink somewhere among them: look closer
        got = float(nudge @ self.returned)
        return abs(slopes[0] - got) > self._slack(slopes, float(np.abs(nudge) @ np.abs(self.returned)))

    def narrowed(self, elements: npt.NDArray[np.int64]) -> Mismatch | None:
        """By halves to an element at which it shows."""
        left = 64
        waiting = [elements]
        while waiting and left:
            part = waiting.pop()
            left -= 1
            if len(part) == 1:
                found = self.at(int(part[0]))
                if found is not None:
                    return found
                continue
            halves = np.array_split(part, 2)
            waiting += [half for half in halves if self.disagrees(half)]
        return None

    def at(self, element: int) -> Mismatch | None:
        nudge = np.zeros(self.directions.size)
        nudge[element] = 1.0
        slopes = self._slopes(nudge)
        if slopes is None:
            return None
        got = float(self.returned[element])
        if abs(slopes[0] - got) <= self._slack(slopes, float(np.max(np.abs(self.returned)))):
            return None
        index = np.unravel_index(element, self.again.inputs[self.place].shape)
        return Mismatch(self.node, self.again, self.place, tuple(int(i) for i in index), slopes[0], got)

    def _slack(self, slopes: tuple[float, float], returned: float) -> float:
        return self.tolerance * (abs(slopes[0]) + returned) + slopes[1]

    def _slopes(self, nudge: Numbers) -> tuple[float, float] | None:
        """The slope, and how far roundoff may move it; None at a kink or a jump, where there is none."""
        wide = self._sided(nudge, self.step)
        if wide is None:
            return None
        forward, backward, noise = wide
        apart = abs(forward - backward)
        if apart > 1e-4 * (abs(forward) + abs(backward)) + noise:  # curved, or kinked?
            close = self._sided(nudge, self.step / 8)
            if close is None or abs(close[0] - close[1]) > apart / 2:
                return None  # what does not get smaller with the step is no curvature
        return (forward + backward) / 2, noise

    def _sided(self, nudge: Numbers, step: float) -> tuple[float, float, float] | None:
        """Slopes to the right and to the left, and their roundoff."""
        shape = self.again.inputs[self.place].shape
        try:
            right, here, left = (self._total(sign * step * nudge.reshape(shape)) for sign in (1.0, 0.0, -1.0))
        except Exception:
            return None
        if not np.all(np.isfinite([right[0], here[0], left[0]])):
            return None
        return (right[0] - here[0]) / step, (here[0] - left[0]) / step, 8 * self.again.precision * here[1] / step

    def _total(self, moved: Numbers) -> tuple[float, float]:
        inputs = list(self.again.inputs)
        inputs[self.place] = inputs[self.place] + moved
        made = self.again.run(inputs)
        terms = [w * o for w, o in zip(self.weights, made, strict=False) if w is not None and o is not None]
        return sum(float(t.sum()) for t in terms), sum(float(np.abs(t).sum()) for t in terms)


def _random(shape: tuple[int, ...], seed: int) -> Numbers:
    size = int(np.prod(shape)) if shape else 1
    signs: Numbers = random_signs(1, max(1, size), seed)[0][:size].reshape(shape)
    return signs


def _tolerance(evidence: Evidence, node: Node, again: Again) -> float:
    """The recorded backward ran in the user's own precision."""
    dtypes = {evidence.graph.tensors[k].dtype for k in (*again.numbers, *node.outputs)}
    if dtypes & {"float16", "bfloat16"}:
        return 5e-2
    return 1e-3 if "float32" in dtypes else 1e-5


def deliberate(again: Again) -> bool:
    """An identity or a staircase with a slope of its own: gradient reversal and straight-through are meant so."""
    try:
        here = again.run(again.inputs)
        if any(o is not None and i.shape == o.shape and np.array_equal(o, i) for i in again.inputs for o in here):
            return True
        for place, base in enumerate(again.inputs):
            moved = list(again.inputs)
            step = max(1e-7, 8 * again.precision)
            moved[place] = base + step * np.maximum(1.0, np.abs(base)) * _random(base.shape, 3)
            there = again.run(moved)
            if any(a is not None and b is not None and not np.array_equal(a, b) for a, b in zip(here, there, strict=False)):
                return False
    except Exception:
        return False
    return True
