"""The gradient is zero: follow the elements of x towards y, to where a nonzero cotangent becomes zero.

At every operation two questions: does it pass *any* cotangent back to these elements (if not, its slope is zero here),
and does it pass *the* cotangent that arrives (if not, contributions cancel: the output does not change with the input).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from wrt._core.evidence import Numbers
from wrt._core.finding import Finding
from wrt._core.graph import Node
from wrt._core.thresholds import MOST_OPERATIONS, ROUNDOFF_ROUNDINGS
from wrt._why.causes import by_operation, key, ops
from wrt._why.check import backward_mismatch, pull
from wrt._why.cut import dead_end, explain_stop
from wrt._why.paths import Stop
from wrt._why.question import Question, max_abs, signs
from wrt._why.thresholds import (
    LONG_PATH_OPERATIONS,
    NOTHING_RATIO,
    SAME_RATIO,
    UNDERFLOW_SIZE,
    rounding,
)
from wrt._why.wrong import MODULE_HOOK, sum_of_pulls

Mask = npt.NDArray[np.bool_]
ELEMENTWISE = ops(
    "mul add sub div neg exp log tanh sigmoid relu pow sqrt abs sin cos integer_pow max min select_n where convert_element_type "
    "Mul AddV2 Sub RealDiv Neg Exp Log Tanh Sigmoid Relu Pow Sqrt Square view reshape transpose getitem softplus gelu silu"
)
ADDS = ops("add linear addmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d AddV2 BiasAdd baddbmm")
PASSIVE = frozenset(["alias", "view", "reshape", "contiguous", "clone", "expand", "broadcasttensors"])
READS = ops("ReadVariableOp Identity")  # what comes out is what went in, element by element


@dataclass(slots=True)
class Walk:
    """What was met: operations with slope zero, those in which contributions cancel, after which a hook stands, or that
    cut the path."""

    flat: list[Node] = field(default_factory=list)
    cancels: list[Node] = field(default_factory=list)
    hooked: list[Node] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)


def is_zero(question: Question) -> bool:
    """Whether what is asked is zero: exactly, or only the roundoff of numbers that cancel."""
    gradient = question.gradient
    if gradient is None:
        return False
    asked = gradient[question.mask]
    if asked.size == 0 or not np.all(np.isfinite(asked)):
        return False
    if not asked.any():
        return True
    largest = max_abs([asked])
    if largest > SAME_RATIO * max_abs([question.seed]):
        return False
    if _sums_to_roundoff(question, largest):
        return True
    if largest > ROUNDOFF_ROUNDINGS * _rounding(question) * max_abs(question.cotangents.values()):
        return False
    if len(question.route.path) > LONG_PATH_OPERATIONS:
        return False
    cleaned = _without_roundoff(question)
    if cleaned is None or cleaned[question.route.x][question.mask].any():
        return False
    question.cotangents.update(cleaned)
    return True


def _sums_to_roundoff(question: Question, largest: float) -> bool:
    """Whether x is added to many elements, and what comes back from them cancels: a bias before a normalization."""
    route, tensors = question.route, question.graph.tensors
    consumers = route.consumers(route.x)
    for node in consumers:
        arrives = question.cotangents.get(node.outputs[0])
        size = max(1, tensors[route.x].size)
        count = tensors[node.outputs[0]].size // size
        if key(node.op) not in ADDS or arrives is None or count < 2:
            return False
        if largest > ROUNDOFF_ROUNDINGS * _rounding(question) * float(np.sum(np.abs(arrives))) / size:
            return False
    return bool(consumers)


def _without_roundoff(question: Question) -> dict[int, Numbers] | None:
    """The cotangents once more, with zeros where contributions cancel but for roundoff."""
    epsilon = _rounding(question)
    sums: dict[int, Numbers] = {question.y: question.seed}
    sizes: dict[int, Numbers] = {question.y: np.abs(question.seed)}
    for node in reversed(question.route.path):
        arrives = [_clean(sums.get(k), sizes.get(k), epsilon) for k in node.outputs]
        if all(c is None for c in arrives):
            continue
        pulled = question.evidence.local(node, arrives)
        inner = _inner_size(question, node, arrives, pulled)
        for number, g, size in zip(node.inputs, pulled, inner, strict=True):
            if g is None or size is None or number not in question.route.gradient:
                continue
            sums[number] = g if number not in sums else sums[number] + g
            sizes[number] = size if number not in sizes else sizes[number] + size
    if question.route.x not in sums:
        return None
    return {k: c for k in sums if (c := _clean(sums[k], sizes[k], epsilon)) is not None}


def _clean(total: Numbers | None, size: Numbers | None, epsilon: float) -> Numbers | None:
    if total is None or size is None:
        return total
    return np.where(np.abs(total) <= ROUNDOFF_ROUNDINGS * epsilon * size, 0.0, total)


def _inner_size(
    question: Question, node: Node, arrives: list[Numbers | None], pulled: list[Numbers | None]
) -> list[Numbers | None]:
    """How large the terms are that an operation sums: by itself where it mixes its elements, as they come otherwise."""
    if key(node.op) in ELEMENTWISE:
        return [None if g is None else np.abs(g) for g in pulled]
    mixed = question.evidence.local(node, [None if c is None else c * signs(c.shape, 31) for c in arrives])
    sizes: list[Numbers | None] = []
    for g, other in zip(pulled, mixed, strict=True):
        if g is None or other is None or not np.all(np.isfinite(other)):
            sizes.append(None if g is None else np.abs(g))
        else:
            sizes.append(np.maximum(np.abs(g), max_abs([other])))
    return sizes


LOOPS = ("while", "scan", "foriloop", "cond")


def find_zero(question: Question) -> list[Finding]:
    """Why the elements asked about have no influence."""
    walk = _walk(question, question.route.x, question.mask)
    found = [_explain_hook(question, node) for node in walk.hooked]
    found += [_explain_flat(question, node) for node in walk.flat]
    found += [_explain_cancelling(question, node) for node in walk.cancels]
    found.sort(key=lambda finding: finding.cause == "not_indexed")  # stable: x[0] beside the x[1] that was asked about
    if walk.stops and all(finding.cause == "not_indexed" for finding in found):
        # other elements of x go on to y; these went into something whose gradient is cut
        found = [explain_stop(question, stop) for stop in walk.stops] + found
    dropped = dead_end(question)
    if dropped is not None and found and all(finding.cause == "mask" for finding in found) and key(dropped.op) in LOOPS:
        words = f"what {dropped.op} makes of {question.names[1]} is never used; the rest is multiplied by zero"
        found.insert(0, question.finding("unused_input", dropped, words, certain=True))
    return found


def _walk(question: Question, value: int, mask: Mask) -> Walk:
    """From elements whose cotangent is zero on to what was computed from them, each way to its end; no depth is too deep."""
    walk = Walk()
    visits = [_visit(question, walk, value, mask)]
    while visits:
        onward = next(visits[-1], None)
        if onward is None:
            visits.pop()
        else:
            visits.append(_visit(question, walk, *onward))
    return walk


def _visit(question: Question, walk: Walk, value: int, mask: Mask) -> Iterator[tuple[int, Mask]]:
    """What the operations do that take these elements; gives the elements to go on with."""
    if value in walk.seen or len(walk.seen) > MOST_OPERATIONS:
        return
    walk.seen.add(value)
    walk.stops += [stop for stop in question.route.stops if value in stop.node.inputs]
    evidence = question.evidence
    for node in question.route.consumers(value):
        places = [k for k, number in enumerate(node.inputs) if number == value]
        any_back = evidence.local(node, [signs(_shape(question, k), k + 1) for k in node.outputs])
        if not _touches(any_back, places, mask):
            if len(places) > 1:
                walk.cancels.append(node)  # x - x: both of its inputs are ours
            elif key(node.op) not in PASSIVE:
                walk.flat.append(node)
            continue
        back = evidence.local(node, question.arrivals(node))
        if _touches(back, places, mask):
            (walk.hooked if _is_hooked(question, value, node, mask) else walk.cancels).append(node)
            continue
        onward = list(_affected(question, node, places, mask))
        yield from onward
        if not onward:
            walk.cancels.append(node)


def _is_hooked(question: Question, value: int, node: Node, mask: Mask) -> bool:
    """Whether what the operations pass back does not cancel, and the engine has zeros all the same."""
    graph = question.graph
    registered = any(key(n.op) == "registerhook" or n.op == MODULE_HOOK for n in graph.nodes)
    total = sum_of_pulls(question, value) if registered else None
    return total is not None and max_abs([total[mask]]) > SAME_RATIO * max_abs(question.arrivals(node))


def _explain_hook(question: Question, node: Node) -> Finding:
    """Zeros that no operation makes; the hook is named by the line that registered it, where that was recorded."""
    noted = [e.where for e in question.evidence.events if e.kind == "module_hook"]
    words = f"{node.op} passes a nonzero gradient back, and zeros go on: a hook stands between"
    one = len({(w.file, w.line) for w in noted if w is not None}) == 1
    return question.finding("hook", noted[-1] if noted else node, words, certain=one)


def _affected(question: Question, node: Node, places: list[int], mask: Mask) -> Iterator[tuple[int, Mask]]:
    """Elements of the outputs that depend on ours and have a zero cotangent: its slope is not zero, so that is where ours
    comes from."""
    for place in places:
        tangent = np.where(mask, signs(mask.shape, 3), 0.0)
        moved = question.evidence.push(node, place, tangent)
        for k, output in enumerate(node.outputs):
            if output not in question.route.gradient & question.route.needed or output in node.inputs:
                continue
            cotangent = question.cotangents.get(output)
            shift = None if moved is None or moved[k] is None or not np.any(moved[k]) else moved[k]  # all zero: underflow
            moves: Mask | None = (mask if key(node.op) in READS else None) if shift is None else np.asarray(shift != 0)
            support = np.ones(_shape(question, output), dtype=bool) if moves is None else moves
            if cotangent is None or not cotangent[support].any():
                yield output, support


def _touches(pulled: list[Numbers | None], places: list[int], mask: Mask) -> bool:
    return any((g := pulled[k]) is not None and bool(g[mask].any()) for k in places)


def _explain_flat(question: Question, node: Node) -> Finding:
    if node.gradient == "custom":
        wrong = _explain_custom_backward(question, node)
        if wrong is not None:
            return wrong
    table = by_operation("flattens")
    slug = table.get(key(question.evidence.via(node))) or table.get(key(node.op)) or "no_derivative"
    if node.write is not None and slug in ("mask", "not_indexed", "no_derivative"):
        slug = "inplace_overwrite"
    if slug == "dead_relu" and _is_active(question, node):
        slug = "clamp"
    if slug == "no_derivative" and node.gradient == "custom":
        slug = "custom_backward_none"
    words = f"a nonzero gradient arrives at {node.op} and none leaves towards {question.names[1]}: its slope is zero here"
    dtypes = {question.graph.tensors[k].dtype for k in (*node.inputs, *node.outputs)}
    if slug in ("mask", "no_derivative", "saturated") and dtypes & {"float16", "bfloat16"}:
        slug, words = "low_precision", f"{words}; the numbers are of {', '.join(sorted(dtypes))}"
        return question.finding(slug, node, words, certain=False, also=("mask", "saturated"))
    known = slug != "no_derivative" or key(node.op) in table
    return question.finding(slug, node, words, certain=known)


def _is_active(question: Question, node: Node) -> bool:
    """A relu with an upper bound that is flat although it gives something: it is above the bound."""
    made = question.evidence.value(node.outputs[0])
    given = question.evidence.saved(node).get("self") if made is None else None
    return any(numbers is not None and bool(np.all(numbers > 0)) for numbers in (made, given))


def _explain_custom_backward(question: Question, node: Node) -> Finding | None:
    """A rule of somebody's own that returns zeros where its forward does move."""
    again = question.evidence.again(node)
    if again is None or not again.custom:
        return None
    found = backward_mismatch(question.evidence, node, again, pull(question.evidence, node))
    if found is None:
        return None
    where, also = again.rule or node.where, ("custom_backward_none",)
    return question.finding("custom_backward_wrong", where, found.words, certain=True, also=also)


def _explain_cancelling(question: Question, node: Node) -> Finding:
    largest = max_abs(question.arrivals(node))
    if 0.0 < largest < UNDERFLOW_SIZE:
        words = f"what arrives at {node.op} has shrunk to {largest:.1e}, and underflows to zero there"
        return question.finding("vanishing_chain", node, words, certain=True)
    squashed = _saturated_function(question, node)
    if squashed is not None:
        words = f"every element that {squashed} gives is 0 or 1 to within roundoff: its slope is zero here"
        return question.finding("saturated", node, words, certain=True, also=("invariant_output",))
    dtypes = {question.graph.tensors[k].dtype for k in (*node.inputs, *node.outputs)}
    if dtypes & {"float16", "bfloat16"}:
        words = f"what arrives at {node.op} cancels to zero, or is too small for {', '.join(sorted(dtypes))}"
        return question.finding("low_precision", node, words, certain=False, also=("invariant_output",))
    words = f"{node.op} passes gradients back, but those that arrive from {question.names[0]} cancel to zero"
    return question.finding("invariant_output", node, words, certain=True)


def _saturated_function(question: Question, node: Node) -> str | None:
    """The function of the library whose parts cancel because it is saturated: a softmax that gives one 1 and zeros."""
    via = question.evidence.via(node)
    if by_operation("flattens").get(key(via)) != "saturated":
        return None
    parts = [n for n in question.route.path if question.evidence.via(n) == via and n.outputs]
    last = question.evidence.value(parts[-1].outputs[0]) if parts else None
    if last is None or not last.size or not np.all((np.abs(last) < NOTHING_RATIO) | (np.abs(last - 1) < NOTHING_RATIO)):
        return None
    return via


def _rounding(question: Question) -> float:
    return rounding(question.graph.tensors[question.route.x].dtype)


def _shape(question: Question, tensor: int) -> tuple[int, ...]:
    return question.graph.tensors[tensor].shape

