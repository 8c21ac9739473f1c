"""One operation against itself: its own backward, and central differences of its forward in double precision.

First along a random direction through all of an input, which no wrong element escapes; then, where the two disagree, by
halves down to the element. `check` does it for every operation of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from wrt._core.evidence import Again, Evidence, Numbers
from wrt._core.finding import Finding, Findings
from wrt._core.graph import Node
from wrt._core.thresholds import FEW_ITEMS
from wrt._core.where import Where
from wrt._why.causes import causes, key, ops
from wrt._why.question import signs
from wrt._why.thresholds import (
    CHECK_TOLERANCE,
    PROBE_ROUNDINGS,
    RERUN_RATIO,
    SAME_RATIO,
    rounding,
)

SYMMETRIC = ops("eigh eigvalsh cholesky cholesky_ex symeig linalg_eigh linalg_eigvalsh linalg_cholesky linalg_cholesky_ex svd "
                "linalg_svd qr linalg_qr lobpcg eig linalg_eig SelfAdjointEigV2 Svd Cholesky Qr pinverse pinv linalg_pinv "
                "linalg_lstsq lstsq matrix_rank linalg_matrix_rank")  # fmt: skip
"""Defined on symmetric matrices, on one rank, or up to a sign: one element cannot be moved alone."""

BY_CONVENTION = ops("embedding embedding_bag as_strided as_strided_scatter as_strided_copy resize set")
"""No derivative where the library says so (a padding row), or a result that hangs on how the memory is laid out."""


def check(evidence: Evidence) -> Findings:
    """Every operation of the run against central differences of its own forward."""
    asked = [node for node in evidence.graph.nodes if _is_checkable(node)]
    pulled = {node.id: pull(evidence, node) for node in asked}  # all of them before anything runs again
    found = []
    for node in asked:
        again = evidence.again(node)
        if again is None or not again.inputs or not pulled[node.id]:
            continue
        wrong = backward_mismatch(evidence, node, again, pulled[node.id])
        if wrong is not None:
            certain = not (again.custom and is_deliberate(again))
            found.append(_finding(node, wrong.words, again.custom, again.rule, certain=certain))
        elif evidence.mutates(node):
            words = f"{again.custom or node.op} writes into the gradient it is given, which others read too"
            found.append(_finding(node, words, again.custom, again.rule, certain=True))
        else:
            wrong = _forward_mismatch(evidence, node, again, pulled[node.id])
            if wrong is not None:
                found.append(_finding(node, wrong.words, again.custom, None, certain=True, mode="forward mode"))
    return Findings(tuple(found), "check")


def _is_checkable(node: Node) -> bool:
    left_alone = key(node.op) in SYMMETRIC or key(node.op) in BY_CONVENTION
    return node.gradient in ("yes", "custom") and node.write is None and bool(node.inputs) and not left_alone


def _finding(
    node: Node, words: str, custom: str, rule: Where | None, *, certain: bool, mode: str = "backward"
) -> Finding:
    cause = causes()["custom_backward_wrong"]
    name = custom or node.op
    where = rule if custom and rule is not None else node.where
    sentence = f"the {mode} of {name} disagrees with its forward"
    if not custom:
        sentence += f" (an operation of the framework, called at {node.where})"
    return Finding(
        cause.slug,
        sentence,
        where,
        certain,
        words,
        cause.remedy if custom else "avoid this output, or give it a derivative of your own",
    )


# ---------------------------------------------------------------- one operation


@dataclass(frozen=True, slots=True)
class Pull:
    """What an operation's own backward made of one seed."""

    weights: list[Numbers | None]
    gradients: list[Numbers | None]


def pull(evidence: Evidence, node: Node, seeds: list[Numbers | None] | None = None) -> list[Pull]:
    """The backward, asked before anything is run again: some keep what they need where the next run overwrites it."""
    shapes = [evidence.graph.tensors[k].shape for k in node.outputs]
    found = []
    for round_ in range(2):
        given: list[Numbers | None] = [signs(s, 11 + round_) for s in shapes]
        if round_ == 0 and seeds is not None:
            given = seeds
        try:
            found.append(Pull(given, evidence.local(node, given)))
        except Exception:
            return []
    return found


def backward_mismatch(evidence: Evidence, node: Node, again: Again, pulled: list[Pull]) -> Mismatch | None:
    """The largest disagreement of a backward with its forward; None where they agree or nobody can tell."""
    try:
        here = again.run(again.inputs)
    except Exception:
        return None
    if not _is_the_same_run(evidence, node, here):
        return None
    if again.is_narrow():
        if not again.custom:
            return None  # a cast: its forward has no more digits than its backward
        again = replace(again, precision=rounding("float32"))
    worst: Mismatch | None = None
    for one in pulled:
        pairs = list(zip(one.weights, here, strict=False))
        if any(w is not None and h is not None and w.shape != h.shape for w, h in pairs):
            continue  # complex results, for which one number is two
        weights = [None if h is None else w for w, h in pairs]
        for place, number in enumerate(again.numbers):
            returned = one.gradients[node.inputs.index(number)]
            found = _input_mismatch(evidence, node, again, place, weights, returned)
            worst = found if worst is None or (found is not None and found.apart > worst.apart) else worst
    return worst


def _forward_mismatch(evidence: Evidence, node: Node, again: Again, pulled: list[Pull]) -> Mismatch | None:
    """The same for forward mode, which frameworks write apart from the backward; None where there is none.

    Inputs without a backward have no derivative by design: targets, class weights, running statistics.
    """
    try:
        here = again.run(again.inputs)
    except Exception:
        return None
    if again.push is None or again.is_narrow() or not _is_the_same_run(evidence, node, here):
        return None
    weights = _weights(evidence, node, here)
    for place, number in enumerate(again.numbers):
        moves = any(one.gradients[node.inputs.index(number)] is not None for one in pulled)
        if node.inputs.count(number) > 1 or not again.inputs[place].size or not moves:
            continue
        found = Probe(evidence, node, again, place, weights, _forward_slope(again, place, weights)).worst()
        if found is not None:
            return replace(found, mode="forward mode")
    return None


def _weights(evidence: Evidence, node: Node, here: Sequence[Numbers | None]) -> list[Numbers | None]:
    """Random weights of the outputs that can have a derivative; none for indices."""
    dtypes = [evidence.graph.tensors[k].dtype for k in node.outputs]
    if any("complex" in dtype for dtype in dtypes):
        return [None] * len(here)
    floats = ["float" in dtype for dtype in dtypes] + [False] * (len(here) - len(dtypes))
    return [signs(h.shape, 17 + k) if h is not None and f else None for k, (h, f) in enumerate(zip(here, floats, strict=True))]


def _forward_slope(again: Again, place: int, weights: list[Numbers | None]) -> Derivative:
    shape = again.inputs[place].shape

    def forward(nudge: Numbers) -> Slope | None:
        try:
            moved = again.push(again.inputs, place, nudge.reshape(shape))
        except Exception:  # no forward mode for this operation
            return None
        # an output without a tangent is one that does not move: so says torch.func.jvp, too
        terms = [w * m for w, m in zip(weights, moved, strict=True) if w is not None and m is not None]
        return Slope(sum(float(t.sum()) for t in terms), sum(float(np.abs(t).sum()) for t in terms))

    return forward


def _is_the_same_run(evidence: Evidence, node: Node, here: Sequence[Numbers | None]) -> bool:
    """Random operations and those with a memory give something else when run again: nothing to compare with."""
    if len(here) < len(node.outputs):
        return False
    for output, again in zip(node.outputs, here, strict=False):
        before = evidence.value(output)
        if before is None or again is None:
            continue
        if before.shape != again.shape or not np.allclose(before, again, rtol=RERUN_RATIO, atol=SAME_RATIO, equal_nan=True):
            return False
    return True


def _input_mismatch(
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
    flat = returned.reshape(-1)
    largest = float(np.max(np.abs(flat)))

    def backward(nudge: Numbers) -> Slope:
        scale = float(np.abs(nudge) @ np.abs(flat)) if np.count_nonzero(nudge) > 1 else largest
        return Slope(float(nudge @ flat), scale)

    return Probe(evidence, node, again, place, weights, backward).worst()


def is_deliberate(again: Again) -> bool:
    """An identity or a staircase with a slope of its own: gradient reversal and straight-through are meant so."""
    try:
        here = again.run(again.inputs)
        if any(o is not None and i.shape == o.shape and np.array_equal(o, i) for i in again.inputs for o in here):
            return True
        for place, base in enumerate(again.inputs):
            moved = list(again.inputs)
            step = max(rounding("float32"), PROBE_ROUNDINGS * again.precision)
            moved[place] = base + step * np.maximum(1.0, np.abs(base)) * signs(base.shape, 3)
            there = again.run(moved)
            if any(a is not None and b is not None and not np.array_equal(a, b) for a, b in zip(here, there, strict=False)):
                return False
    except Exception:
        return False
    return True


# ---------------------------------------------------------------- one input of it


class Slope(NamedTuple):
    """What a derivative says about moving an input, and how large the terms are that it sums."""

    slope: float
    scale: float


Derivative: TypeAlias = Callable[[Numbers], Slope | None]  # a direction, flat -> what the derivative says about it


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
        self, evidence: Evidence, node: Node, again: Again, place: int, weights: list[Numbers | None], derivative: Derivative
    ) -> None:
        self.node, self.again, self.place, self.weights = node, again, place, weights
        self.derivative = derivative
        base = again.inputs[place]
        self.step = again.precision ** (1 / 3) * max(1.0, float(np.max(np.abs(base))))
        self.directions = signs((base.size,), 23)
        self.tolerance = _tolerance(evidence, node, again)

    def worst(self) -> Mismatch | None:
        """The element at which the two disagree most; one of many, where there are many."""
        size = self.again.inputs[self.place].size
        if size > FEW_ITEMS:
            return self.narrow(np.arange(size)) if self.disagrees(np.arange(size)) else None
        found = [self.at(k) for k in range(size)]
        return max((f for f in found if f is not None), key=lambda f: f.apart, default=None)

    def disagrees(self, elements: npt.NDArray[np.int64]) -> bool:
        """Whether moving these elements together changes the output otherwise than the backward says."""
        nudge = np.zeros(self.directions.size)
        nudge[elements] = self.directions[elements]
        slopes = self._slopes(nudge)
        if slopes is None:
            return len(elements) > 1  # a kink somewhere among them: look closer
        got = self.derivative(nudge)
        return got is not None and abs(slopes[0] - got.slope) > self._slack(slopes, got.scale)

    def narrow(self, elements: npt.NDArray[np.int64]) -> Mismatch | None:
        """By halves to an element at which it shows."""
        left = FEW_ITEMS
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
        got = self.derivative(nudge)
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
        wide = self._one_sided(nudge, self.step)
        if wide is None:
            return None
        forward, backward, noise = wide
        apart = abs(forward - backward)
        if apart > self.tolerance * (abs(forward) + abs(backward)) + noise:  # curved, or kinked?
            close = self._one_sided(nudge, self.step / PROBE_ROUNDINGS)
            if close is None or abs(close[0] - close[1]) > apart / 2:
                return None  # what does not get smaller with the step is no curvature
        return (forward + backward) / 2, noise

    def _closer(self, nudge: Numbers, got: float, apart: float) -> bool:
        """Whether a smaller step brings the differences nearer to the derivative: then the step was too long.

        By half, as above: of a kink, what is too little for the one is enough for the other.
        """
        close = self._one_sided(nudge, self.step / PROBE_ROUNDINGS)
        return close is not None and abs((close[0] + close[1]) / 2 - got) < apart / 2 + close[2]

    def _one_sided(self, nudge: Numbers, step: float) -> tuple[float, float, float] | None:
        """Slopes to the right and to the left, and their roundoff."""
        shape = self.again.inputs[self.place].shape
        try:
            right, here, left = (self._total(sign * step * nudge.reshape(shape)) for sign in (1.0, 0.0, -1.0))
        except Exception:
            return None
        if not np.all(np.isfinite([right[0], here[0], left[0]])):
            return None
        return (right[0] - here[0]) / step, (here[0] - left[0]) / step, PROBE_ROUNDINGS * self.again.precision * here[1] / step

    def _total(self, moved: Numbers) -> tuple[float, float]:
        inputs = list(self.again.inputs)
        inputs[self.place] = inputs[self.place] + moved
        made = self.again.run(inputs)
        terms = [w * o for w, o in zip(self.weights, made, strict=False) if w is not None and o is not None]
        return sum(float(t.sum()) for t in terms), sum(float(np.abs(t).sum()) for t in terms)


def _tolerance(evidence: Evidence, node: Node, again: Again) -> float:
    """The recorded backward ran in the user's own precision."""
    dtypes = {evidence.graph.tensors[k].dtype for k in (*again.numbers, *node.outputs)}
    return max((CHECK_TOLERANCE[dtype] for dtype in dtypes & CHECK_TOLERANCE.keys()), default=CHECK_TOLERANCE["float64"])
