"""One operation against itself: its own backward, and central differences of its forward in double precision.

First along a random direction through all of an input, which no wrong element escapes; then, where the two disagree, by
halves down to the element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wrt._core.evidence import Again, Evidence, Numbers
from wrt._core.graph import Node
from wrt._core.protocol import random_signs
from wrt._why.probe import Answer, Mismatch, Probe, Said


@dataclass(frozen=True, slots=True)
class Pulled:
    """What an operation's own backward made of one seed."""

    weights: list[Numbers | None]
    gradients: list[Numbers | None]


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
        pairs = list(zip(one.weights, here, strict=False))
        if any(w is not None and h is not None and w.shape != h.shape for w, h in pairs):
            continue  # complex results, for which one number is two
        weights = [None if h is None else w for w, h in pairs]
        for place, number in enumerate(again.numbers):
            returned = one.gradients[node.inputs.index(number)]
            found = _input(evidence, node, again, place, weights, returned)
            worst = found if worst is None or (found is not None and found.apart > worst.apart) else worst
    return worst


def forward_mismatch(evidence: Evidence, node: Node, again: Again, pulled: list[Pulled]) -> Mismatch | None:
    """The same for forward mode, which frameworks write apart from the backward; None where there is none.

    Inputs without a backward have no derivative by design: targets, class weights, running statistics.
    """
    try:
        here = again.run(again.inputs)
    except Exception:
        return None
    if again.push is None or getattr(again.run, "narrow", False) or not _is_the_same_run(evidence, node, here):
        return None
    weights = _weights(evidence, node, here)
    for place, number in enumerate(again.numbers):
        moves = any(one.gradients[node.inputs.index(number)] is not None for one in pulled)
        if node.inputs.count(number) > 1 or not again.inputs[place].size or not moves:
            continue
        found = Probe(evidence, node, again, place, weights, _pushed(again, place, weights)).worst()
        if found is not None:
            return replace(found, mode="forward mode")
    return None


def _weights(evidence: Evidence, node: Node, here: Sequence[Numbers | None]) -> list[Numbers | None]:
    """Random weights of the outputs that can have a derivative; none for indices."""
    dtypes = [evidence.graph.tensors[k].dtype for k in node.outputs]
    if any("complex" in dtype for dtype in dtypes):
        return [None] * len(here)
    floats = ["float" in dtype for dtype in dtypes] + [False] * (len(here) - len(dtypes))
    return [_random(h.shape, 17 + k) if h is not None and f else None for k, (h, f) in enumerate(zip(here, floats, strict=True))]


def _pushed(again: Again, place: int, weights: list[Numbers | None]) -> Answer:
    shape = again.inputs[place].shape

    def forward(nudge: Numbers) -> Said | None:
        try:
            moved = again.push(again.inputs, place, nudge.reshape(shape))
        except Exception:  # no forward mode for this operation
            return None
        # an output without a tangent is one that does not move: so says torch.func.jvp, too
        terms = [w * m for w, m in zip(weights, moved, strict=True) if w is not None and m is not None]
        return Said(sum(float(t.sum()) for t in terms), sum(float(np.abs(t).sum()) for t in terms))

    return forward


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
    flat = returned.reshape(-1)
    largest = float(np.max(np.abs(flat)))

    def backward(nudge: Numbers) -> Said:
        scale = float(np.abs(nudge) @ np.abs(flat)) if np.count_nonzero(nudge) > 1 else largest
        return Said(float(nudge @ flat), scale)

    return Probe(evidence, node, again, place, weights, backward).worst()


def _random(shape: tuple[int, ...], seed: int) -> Numbers:
    size = int(np.prod(shape)) if shape else 1
    signs: Numbers = random_signs(1, max(1, size), seed)[0][:size].reshape(shape)
    return signs


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
