"""One operation against itself: its own backward, and central differences of its forward in double precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wrt._core.evidence import Again, Evidence, Numbers
from wrt._core.graph import Node
from wrt._core.protocol import random_signs

MOST = 64
"""Directions looked at: every element of a small input, random combinations of a large one."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where the backward and the forward disagree: input, element, the number expected and the number returned."""

    node: Node
    again: Again
    place: int
    element: tuple[int, ...]
    expected: float
    returned: float

    @property
    def words(self) -> str:
        at = f"[{', '.join(map(str, self.element))}]" if self.element else ""
        return (
            f"{self.again.custom or self.node.op}, input {self.place}{at}: "
            f"central differences give {self.expected:.6g}, its backward returns {self.returned:.6g}"
        )


def mismatch(evidence: Evidence, node: Node, again: Again, seeds: list[Numbers | None] | None = None) -> Mismatch | None:
    """The largest disagreement between an operation's backward and its forward; None where they agree or nobody can tell."""
    shapes = [evidence.graph.tensors[k].shape for k in node.outputs]
    try:
        here = again.run(again.inputs)
    except Exception:
        return None
    if len(here) < len(shapes):
        return None
    worst: Mismatch | None = None
    for round_ in range(2):
        given = seeds if round_ == 0 and seeds is not None else [_random(s, 11 + round_) for s in shapes]
        weights = [None if s is None or h is None or s.shape != h.shape else s for s, h in zip(given, here, strict=False)]
        try:
            pulled = evidence.local(node, weights)
        except Exception:
            return None
        for place, number in enumerate(again.numbers):
            returned = pulled[node.inputs.index(number)]
            if returned is not None and returned.shape == again.inputs[place].shape and np.all(np.isfinite(returned)):
                worst = _worse(worst, _compare(evidence, node, again, place, weights, returned))
    return worst


def _random(shape: tuple[int, ...], seed: int) -> Numbers:
    size = int(np.prod(shape)) if shape else 1
    return random_signs(1, max(1, size), seed)[0][:size].reshape(shape)


def _worse(a: Mismatch | None, b: Mismatch | None) -> Mismatch | None:
    if a is None or b is None:
        return a or b
    return a if abs(a.expected - a.returned) >= abs(b.expected - b.returned) else b


def _compare(
    evidence: Evidence, node: Node, again: Again, place: int, weights: list[Numbers | None], returned: Numbers
) -> Mismatch | None:
    base = again.inputs[place]
    scale = max(1.0, float(np.max(np.abs(base))) if base.size else 1.0)
    step = again.precision ** (1 / 3) * scale
    worst: Mismatch | None = None
    flat = np.flatnonzero(np.ones(base.shape)) if base.size <= MOST else _some(base.size)
    tolerance = _tolerance(evidence, node, again)
    for element in flat:
        nudge = np.zeros(base.size)
        nudge[element] = step
        sums = _sided(again, place, nudge.reshape(base.shape), weights)
        if sums is None:
            continue
        forward, backward, largest = sums[0] / step, sums[1] / step, sums[2]
        noise = 8 * again.precision * largest / step
        if abs(forward - backward) > 100 * step * (abs(forward) + abs(backward)) + noise:
            continue  # a kink or a jump here: there is no derivative to compare with
        expected = (forward + backward) / 2
        got = float(returned.reshape(-1)[element])
        slack = tolerance * (abs(expected) + abs(got) + float(np.max(np.abs(returned)))) + noise
        if abs(expected - got) > slack:
            found = Mismatch(node, again, place, tuple(int(i) for i in np.unravel_index(element, base.shape)), expected, got)
            worst = _worse(worst, found)
    return worst


def _some(size: int) -> Numbers:
    return np.unique(np.random.default_rng(5).integers(0, size, MOST))


def _sided(
    again: Again, place: int, nudge: Numbers, weights: list[Numbers | None]
) -> tuple[float, float, float] | None:
    """The weighted output's change to the right and to the left, and how large its terms are."""

    def total(sign: float) -> tuple[float, float]:
        inputs = list(again.inputs)
        inputs[place] = inputs[place] + sign * nudge
        terms = [w * o for w, o in zip(weights, again.run(inputs), strict=False) if w is not None and o is not None]
        return sum(float(t.sum()) for t in terms), sum(float(np.abs(t).sum()) for t in terms)

    try:
        right, here, left = total(1.0), total(0.0), total(-1.0)
    except Exception:
        return None
    if not np.all(np.isfinite([right[0], here[0], left[0]])):
        return None
    return right[0] - here[0], here[0] - left[0], here[1]


def _tolerance(evidence: Evidence, node: Node, again: Again) -> float:
    """The recorded backward ran in the user's own precision."""
    dtypes = {evidence.graph.tensors[k].dtype for k in (*again.numbers, *node.outputs)}
    if dtypes & {"float16", "bfloat16"}:
        return 5e-2
    return 2e-3 if "float32" in dtypes else 1e-5


def deliberate(again: Again) -> bool:
    """An identity or a staircase with a slope of its own: gradient reversal and straight-through are meant so."""
    try:
        here = again.run(again.inputs)
        if any(o is not None and i.shape == o.shape and np.array_equal(o, i) for i in again.inputs for o in here):
            return True
        for place, base in enumerate(again.inputs):
            moved = list(again.inputs)
            moved[place] = base + 1e-7 * np.maximum(1.0, np.abs(base)) * _random(base.shape, 3)
            there = again.run(moved)
            if any(a is not None and b is not None and not np.array_equal(a, b) for a, b in zip(here, there, strict=False)):
                return False
    except Exception:
        return False
    return True
