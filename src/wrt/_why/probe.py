"""One input of one operation: how its forward moves with it, and what a derivative says to that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from wrt._core.evidence import Again, Evidence, Numbers
from wrt._core.graph import Node
from wrt._core.protocol import random_signs


class Said(NamedTuple):
    """What a derivative says about moving an input, and how large the terms are that it sums."""

    slope: float
    scale: float


Answer: TypeAlias = Callable[[Numbers], Said | None]  # a direction, flat -> what the derivative says about it


FEW = 48
"""Inputs of so many elements are looked at one by one."""


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
    mode: str = "backward"

    @property
    def apart(self) -> float:
        return abs(self.expected - self.returned)

    @property
    def words(self) -> str:
        name = self.again.custom or self.node.op
        if self.said:
            return f"{name}, input {self.place}: {self.said}"
        at = f"[{', '.join(map(str, self.element))}]" if self.element else ""
        return (
            f"{name}, input {self.place}{at}: central differences give {self.expected:.6g}, "
            f"its {self.mode} returns {self.returned:.6g}"
        )


class Probe:
    """Differences of one input of one operation."""

    def __init__(
        self, evidence: Evidence, node: Node, again: Again, place: int, weights: list[Numbers | None], answer: Answer
    ) -> None:
        self.node, self.again, self.place, self.weights = node, again, place, weights
        self.answer = answer
        base = again.inputs[place]
        self.step = again.precision ** (1 / 3) * max(1.0, float(np.max(np.abs(base))))
        self.directions = random_signs(1, base.size, 23)[0]
        self.tolerance = _tolerance(evidence, node, again)

    def worst(self) -> Mismatch | None:
        """The element at which the two disagree most; one of many, where there are many."""
        size = self.again.inputs[self.place].size
        if size > FEW:
            return self.narrowed(np.arange(size)) if self.disagrees(np.arange(size)) else None
        found = [self.at(k) for k in range(size)]
        return max((f for f in found if f is not None), key=lambda f: f.apart, default=None)

    def disagrees(self, elements: npt.NDArray[np.int64]) -> bool:
        """Whether moving these elements together changes the output otherwise than the backward says."""
        nudge = np.zeros(self.directions.size)
        nudge[elements] = self.directions[elements]
        slopes = self._slopes(nudge)
        if slopes is None:
            return len(elements) > 1  # a kink somewhere among them: look closer
        got = self.answer(nudge)
        return got is not None and abs(slopes[0] - got.slope) > self._slack(slopes, got.scale)

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
        got = self.answer(nudge)
        if got is None or abs(slopes[0] - got.slope) <= self._slack(slopes, got.scale):
            return None
        if self._closer(nudge, got.slope, abs(slopes[0] - got.slope)):
            return None
        index = np.unravel_index(element, self.again.inputs[self.place].shape)
        return Mismatch(self.node, self.again, self.place, tuple(int(i) for i in index), slopes[0], got.slope)

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

    def _closer(self, nudge: Numbers, got: float, apart: float) -> bool:
        """Whether a smaller step brings the differences nearer to the derivative: then the step was too long."""
        close = self._sided(nudge, self.step / 16)
        return close is not None and abs((close[0] + close[1]) / 2 - got) < apart / 4 + close[2]

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


def _tolerance(evidence: Evidence, node: Node, again: Again) -> float:
    """The recorded backward ran in the user's own precision."""
    dtypes = {evidence.graph.tensors[k].dtype for k in (*again.numbers, *node.outputs)}
    if dtypes & {"float16", "bfloat16"}:
        return 5e-2
    return 1e-3 if "float32" in dtypes else 1e-5
