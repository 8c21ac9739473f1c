"""The gradient is NaN or infinite: follow it to the operation where a finite cotangent becomes one that is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from wrt._core.evidence import Numbers
from wrt._core.finding import Finding
from wrt._core.graph import Node
from wrt._why.causes import by_operation, key, ops
from wrt._why.question import Question, max_abs
from wrt._why.thresholds import CHAIN_OPERATIONS, GUARD_OPERATIONS, ORDINARY_RATIO

WHERE = ops("where SelectV2 Select select_n masked_fill select")
GUARDS = ops("clamp clip clamp_min clamp_max add sub maximum minimum Maximum Minimum AddV2 ClipByValue max min neg Neg")
NARROW = ("float16", "bfloat16", "half")


def is_not_finite(question: Question) -> bool:
    gradient = question.gradient
    return gradient is not None and not bool(np.all(np.isfinite(gradient[question.mask])))


def find_not_finite(question: Question) -> list[Finding]:
    """Where the first number that is not finite was born."""
    return [_explain_birth(question, node) for node in _births(question)]


def _births(question: Question) -> list[Node]:
    """Operations whose backward makes it out of finite cotangents, on the way from x; the first one met is enough."""
    found: list[Node] = []
    seen: set[int] = set()
    waiting = [question.route.x]
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        for node in question.route.consumers(value):
            arrives = question.arrivals(node)
            finite = [None if c is None else np.where(np.isfinite(c), c, 0.0) for c in arrives]
            if _makes_not_finite(question, node, value, finite):
                if node not in found:
                    found.append(node)
            elif _makes_not_finite(question, node, value, arrives):
                waiting += [k for k, c in zip(node.outputs, arrives, strict=True) if c is not None and not np.all(np.isfinite(c))]
    known = by_operation("breaks")

    def rank(node: Node) -> tuple[bool, int]:  # a product with inf only passes on what a log or a division made
        singular = key(node.op) in known or key(question.evidence.via(node)) in known
        return not singular, node.id

    return sorted(found, key=rank)


def _makes_not_finite(question: Question, node: Node, value: int, arrives: Sequence[Numbers | None]) -> bool:
    """Whether the operation's own pull of these cotangents is not finite at this input."""
    pulled = question.evidence.local(node, arrives)
    mine = [g for number, g in zip(node.inputs, pulled, strict=True) if number == value and g is not None]
    return any(not np.all(np.isfinite(g)) for g in mine)


def find_nan_value(question: Question) -> list[Finding]:
    """The gradient is finite, and y itself is NaN: a loss nobody can use, whatever its slope."""
    maker = question.graph.producer(question.y)
    if maker is None or not _is_nan(question, question.y):
        return []
    node = _source_of(question, _first_nan(question) or maker, _is_nan)
    slug, _ = _cause_of(question, node)
    words = f"{question.names[0]} is NaN: {node.op} made the first one, of numbers that were none"
    table = by_operation("breaks")
    known = key(node.op) in table or key(question.evidence.via(node)) in table
    return [question.finding(slug, node, words, certain=known)]


def _first_nan(question: Question) -> Node | None:
    """The first operation on the way to y whose result is known to be NaN; the numbers of many are not kept."""
    needed = question.route.needed
    on_the_way = (node for node in question.graph.nodes if not needed.isdisjoint(node.outputs))
    return next((node for node in on_the_way if any(_is_nan(question, k) for k in node.outputs)), None)


def _source_of(question: Question, node: Node, bad: Callable[[Question, int], bool] | None = None) -> Node:
    """Where a number that is not finite came from, if the operation was given one already."""
    graph, seen = question.graph, {node.id}
    while True:
        makers = [graph.producer(k) for k in node.inputs if (bad or _is_bad)(question, k)]
        earlier = [m for m in makers if m is not None and m.id not in seen]
        if not earlier:
            return node
        node = earlier[0]
        seen.add(node.id)


def _is_bad(question: Question, tensor: int) -> bool:
    numbers = question.evidence.value(tensor)
    return numbers is not None and not bool(np.all(np.isfinite(numbers)))


def _is_nan(question: Question, tensor: int) -> bool:
    numbers = question.evidence.value(tensor)
    return numbers is not None and bool(np.any(np.isnan(numbers)))


def _explain_birth(question: Question, node: Node) -> Finding:
    evidence = question.evidence
    if key(node.op) not in by_operation("breaks") and key(evidence.via(node)) not in by_operation("breaks"):
        node = _source_of(question, node)
    steep = _has_infinite_slope(question, node)
    slug, words = _cause_of(question, node)
    discarding = _discarding_where(question, node) if steep else None
    if discarding is not None:
        words = (
            f"the slope of {node.op} is not finite here, and {discarding.op} at {discarding.where} discards the branch: 0 * inf"
        )
        return question.finding("where_nan_trap", node, words, certain=True, also=(slug,))
    dtype = evidence.graph.tensors[node.inputs[0]].dtype
    guard = evidence.graph.producer(node.inputs[0]) if node.inputs else None
    if dtype in NARROW and (_is_guarded(question, node) or _overflows(question, node)):
        words = f"the numbers around {node.op} leave the range of {dtype}, or a guard before it does nothing in it: {words}"
        return question.finding("low_precision", node, words, certain=guard is not None, also=(slug,))
    table = by_operation("breaks")
    known = key(node.op) in table or key(evidence.via(node)) in table
    growth = None if known else _growth(question, node)
    if growth is not None:
        words = f"the numbers grow on the way to {growth:.0e} and beyond what {dtype} holds"
        return question.finding("exploding_product", node, words, certain=True)
    return question.finding(slug, node, words, certain=known)


def _growth(question: Question, node: Node) -> float | None:
    """How large the cotangents had become, where they grew over many operations before they left the type."""
    cotangents = [c for later in question.route.path for c in question.arrivals(later) if c is not None and c.size]
    sizes = [max_abs([c]) for c in cotangents if np.all(np.isfinite(c))]
    steps = [s for s in sizes if s > ORDINARY_RATIO * max(max_abs([question.seed]), 1.0)]
    return max(steps) if len(steps) >= CHAIN_OPERATIONS else None


def _cause_of(question: Question, node: Node) -> tuple[str, str]:
    """The cause by the operation, refined by the numbers it kept."""
    table = by_operation("breaks")
    via = table.get(key(question.evidence.via(node)))
    slug = via or table.get(key(node.op)) or "domain_edge"  # what the user's line called says more than its parts
    kept = question.evidence.saved(node)
    numbers = kept.get("self", kept.get("result"))
    words = f"a finite gradient arrives at {node.op}, and one that is not finite leaves"
    if numbers is not None and numbers.size and slug in ("sqrt_at_zero", "log_zero"):
        argument = numbers**2 if "self" not in kept else numbers
        if np.any(np.isnan(argument)) or (np.any(argument < 0) and not np.any(argument == 0)):
            slug = "domain_edge" if key(node.op) not in ("log1p",) else slug
        words += f"; its smallest argument is {np.nanmin(argument):.3g}" if not np.all(np.isnan(argument)) else ""
    return slug, words


def _has_infinite_slope(question: Question, node: Node) -> bool:
    """Whether even a zero cotangent comes back as something that is not finite."""
    zeros = [np.zeros(question.graph.tensors[k].shape) for k in node.outputs]
    pulled = question.evidence.local(node, list(zeros))
    return any(g is not None and not np.all(np.isfinite(g)) for g in pulled)


def _discarding_where(question: Question, node: Node) -> Node | None:
    """A where() downstream that gives this operation's result no cotangent where the slope is infinite."""
    after = set(node.outputs)
    for later in question.route.path:
        if later.id <= node.id or after.isdisjoint(later.inputs):
            continue
        if key(later.op) in WHERE:
            zeros = [c for k in later.inputs if k in after and (c := question.cotangents.get(k)) is not None]
            if any(bool(np.any(c == 0)) for c in zeros):
                return later
        after.update(later.outputs)
    return None


def _overflows(question: Question, node: Node) -> bool:
    """Whether something infinite came in that no log or division made: a number too large for the type."""
    graph = question.graph
    if key(node.op) not in by_operation("breaks"):
        return True
    makers = [graph.producer(k) for k in node.inputs if _is_bad(question, k)]
    return any(m is not None and by_operation("breaks").get(key(m.op)) in (None, "domain_edge") for m in makers)


def _is_guarded(question: Question, node: Node) -> bool:
    """Whether something before the operation was meant to keep its argument inside the domain."""
    graph = question.graph
    value: int | None = node.inputs[0]
    for _ in range(GUARD_OPERATIONS):
        maker = None if value is None else graph.producer(value)
        if maker is None:
            return False
        if key(maker.op) in GUARDS and key(maker.op) not in ("neg",):
            return True
        value = maker.inputs[0] if maker.inputs else None
    return False
