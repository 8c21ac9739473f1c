"""Which tensors of a run are worth a closer look: most have a gradient of ordinary size, and one pass shows it."""

from __future__ import annotations

from collections.abc import Sequence

from wrt._core.evidence import Evidence
from wrt._core.graph import Graph, Node
from wrt._why.cause import key
from wrt._why.paths import carries_numbers, upstream
from wrt._why.question import Question
from wrt._why.size import HUGE, TINY
from wrt._why.wrong import crossed_loss, made_by, softmax_before
from wrt._why.zero import ADDS, EPSILON, ROUNDOFF


def doubtful(evidence: Evidence, ys: list[int], xs: list[int]) -> list[int]:
    """Those x of which a glance at all gradients does not prove that they are well."""
    well = _well(evidence, ys, xs)
    if not well:
        return xs
    well -= _with_a_past(evidence, well)
    for node in _suspects(evidence):
        above = upstream(evidence.graph, node.outputs[0] if node.outputs else node.inputs[0])
        well -= set(_first(evidence, xs, above))
    return [x for x in xs if x not in well]


def _well(evidence: Evidence, ys: list[int], xs: list[int]) -> set[int]:
    """Reached from a loss, by finite numbers that are neither tiny nor huge, and by no loss with a zero."""
    reached: set[int] = set()
    ill: set[int] = set()
    added = _added_to(evidence, xs)
    asked = [*xs, *dict.fromkeys(k for outputs in added.values() for k in outputs)]
    for y in ys:
        try:
            found = evidence.largest(y, Question(evidence, y, y).seed, asked)
        except Exception:  # the engine refuses: which operation, and why, is for the examination to say
            return set()
        if found is None or evidence.refused(y, y, evidence.graph.nodes):
            return set()
        sizes = dict(zip(asked, found, strict=True))
        for x in xs:
            size = sizes[x]
            if size is not None:
                fine = TINY < size < HUGE or _cancels(evidence.graph, x, size, [sizes[k] for k in added.get(x, ())], added)
                (reached if fine else ill).add(x)
    return {x for x in reached - ill if evidence.starts(x) == -1}


def _added_to(evidence: Evidence, xs: list[int]) -> dict[int, list[int]]:
    """For each x that nothing but sums over many elements takes, what came out of them: biases."""
    graph = evidence.graph
    own = {moment: x for x in xs for moment in evidence.moments(x)}
    found: dict[int, list[int]] = {}
    others: set[int] = set()
    for node in graph.nodes:
        for k in node.inputs:
            if k in own and node.write is None and carries_numbers(node):
                larger = bool(node.outputs) and graph.tensors[node.outputs[0]].size >= 2 * graph.tensors[k].size
                if key(node.op) in ADDS and larger:
                    found.setdefault(own[k], []).append(node.outputs[0])
                else:
                    others.add(own[k])
    return {x: outputs for x, outputs in found.items() if x not in others}


def _cancels(graph: Graph, x: int, size: float, arrive: list[float | None], added: dict[int, list[int]]) -> bool:
    """Whether all that is left is the roundoff of a sum that cancels, as for a bias before a normalization: expected."""
    if x not in added or not 0.0 < size <= TINY:
        return False
    count = graph.tensors[added[x][0]].size // max(1, graph.tensors[x].size)
    largest = max((one for one in arrive if one is not None), default=0.0)
    return size <= ROUNDOFF * EPSILON.get(graph.tensors[x].dtype, 1.2e-7) * largest * count


def _with_a_past(evidence: Evidence, xs: set[int]) -> set[int]:
    """Those whose `.grad` was not empty when a backward added to it."""
    held = {int(word) for event in evidence.events if event.kind == "backward" for word in event.words[1:] if word.isdigit()}
    return {x for x in xs if held.intersection(evidence.moments(x))} if held else set()


def _suspects(evidence: Evidence) -> list[Node]:
    """Operations that can make a gradient of ordinary size a wrong one."""
    return [node for node in evidence.graph.nodes if _is_suspect(evidence.graph, node)]


def _is_suspect(graph: Graph, node: Node) -> bool:
    if node.gradient == "custom" or key(node.op) == "registerhook":
        return bool(node.inputs)
    if len(node.inputs) > 1 and crossed_loss(graph, node):
        return True
    return bool(node.inputs) and softmax_before(graph, node, made_by(graph, node.inputs[0]))


def _first(evidence: Evidence, xs: Sequence[int], above: set[int]) -> list[int]:
    """One tensor above an operation is enough to ask about the operation."""
    return next(([x] for x in xs if not above.isdisjoint(evidence.moments(x))), [])
