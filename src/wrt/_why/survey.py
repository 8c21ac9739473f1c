"""Everything that looks wrong in a run: what the user trains, with respect to what it is trained by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from wrt._core.evidence import Evidence, Numbers
from wrt._core.finding import Finding, Findings
from wrt._core.graph import Graph, Node
from wrt._core.thresholds import ROUNDOFF_ROUNDINGS
from wrt._why.causes import key
from wrt._why.examine import examine
from wrt._why.paths import carries_numbers, trainable, upstream
from wrt._why.question import Question, display_name
from wrt._why.thresholds import ORDINARY_RATIO, SURVEYED_TENSORS, rounding
from wrt._why.wrong import is_crossed_loss, is_double_softmax, producer_before_reshapes
from wrt._why.zero import ADDS

EXPECTED = frozenset(["not_requires_grad", "not_indexed", "mask", "invariant_output", "tie_subgradient"])
"""Right answers to a question that nobody asked: frozen layers, rows that are not in the batch, a bias before a norm."""


def survey(evidence: Evidence) -> Findings:
    """What `why` finds, with evidence, for each tensor that should have a gradient."""
    found: dict[tuple[str, str | None, int | None], Finding] = {}
    for ys, xs in _groups(evidence):
        passes: dict[int, dict[int, Numbers | None]] = {}
        for x in _suspicious(evidence, ys, xs[:SURVEYED_TENSORS]):
            for finding in _examine_tensor(evidence, ys, x, passes):
                if finding.certain and finding.cause not in EXPECTED:
                    found.setdefault((finding.cause, finding.file, finding.line), finding)
    return Findings(tuple(found.values()), "why, for everything in this run")


def _examine_tensor(
    evidence: Evidence, ys: list[int], x: int, passes: dict[int, dict[int, Numbers | None]]
) -> Iterator[Finding]:
    """A tensor that any of several losses reaches is judged by those; otherwise by the last one."""
    graph = evidence.graph
    names = display_name(graph, x, "an input")
    questions = [Question(evidence, y, x, (display_name(graph, y, "the result"), names)) for y in ys]
    reached = [q for q in questions if q.route.connected]
    for question in reached or questions[-1:]:
        if question.y in passes:
            question.cotangents = passes[question.y]  # one pass for all of them
        elif question in reached:
            with suppress(Exception):  # what the engine refuses is said by the examination
                passes[question.y] = question.cotangents
        yield from examine(question)


def _groups(evidence: Evidence) -> Iterator[tuple[list[int], list[int]]]:
    """Losses, and what they are to move: what a tape was asked for; the parameters of the optimizer that steps next;
    without either, every leaf."""
    requests = evidence.requests()
    if requests:
        yield from requests
        return
    events = [e for e in evidence.events if e.kind == "step" or (e.kind == "backward" and e.words[:1] == ("adds",))]
    steps: dict[object, tuple[list[int], list[int]]] = {}  # of a loop, the last time round
    losses: list[int] = []
    for event in events:
        if event.kind == "backward":
            losses += event.values
        elif losses:
            steps[event.where] = (list(dict.fromkeys(losses)), list(event.values))
            losses = []
    if steps:
        yield from steps.values()
        return
    ys = list(dict.fromkeys(losses)) or _results(evidence.graph)
    if ys:
        yield ys, trainable(evidence)


def _results(graph: Graph) -> list[int]:
    """What the run returned, or the last thing it made."""
    if graph.outputs:
        return list(dict.fromkeys(graph.outputs))
    used = {k for node in graph.nodes for k in node.inputs}
    ends = [k for node in graph.nodes for k in node.outputs if k not in used and "float" in graph.tensors[k].dtype]
    return ends[-1:]


# ---------------------------------------------------------------- one glance at all gradients


def _suspicious(evidence: Evidence, ys: list[int], xs: list[int]) -> list[int]:
    """Those x of which a glance at all gradients does not prove that they are well."""
    healthy = _healthy(evidence, ys, xs)
    if not healthy:
        return xs
    healthy -= _accumulating(evidence, healthy)
    for node in (one for one in evidence.graph.nodes if _is_suspect(evidence.graph, one)):
        above = upstream(evidence.graph, node.outputs[0] if node.outputs else node.inputs[0])
        healthy -= set([x for x in xs if not above.isdisjoint(evidence.moments(x))][:1])  # one is enough to ask about the node
    return [x for x in xs if x not in healthy]


def _healthy(evidence: Evidence, ys: list[int], xs: list[int]) -> set[int]:
    """Reached from a loss, by finite numbers that are neither tiny nor huge, and by no loss with a zero."""
    reached: set[int] = set()
    ill: set[int] = set()
    added = _sums_with(evidence, xs)
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
                ordinary = 1 / ORDINARY_RATIO < size < ORDINARY_RATIO
                fine = ordinary or _cancels(evidence.graph, x, size, [sizes[k] for k in added.get(x, ())], added)
                (reached if fine else ill).add(x)
    return {x for x in reached - ill if evidence.starts(x) == -1}


def _sums_with(evidence: Evidence, xs: list[int]) -> dict[int, list[int]]:
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
    if x not in added or not 0.0 < size <= 1 / ORDINARY_RATIO:
        return False
    count = graph.tensors[added[x][0]].size // max(1, graph.tensors[x].size)
    largest = max((one for one in arrive if one is not None), default=0.0)
    return size <= ROUNDOFF_ROUNDINGS * rounding(graph.tensors[x].dtype) * largest * count


def _accumulating(evidence: Evidence, xs: set[int]) -> set[int]:
    """Those whose `.grad` was not empty when a backward added to it."""
    held = {int(word) for event in evidence.events if event.kind == "backward" for word in event.words[1:] if word.isdigit()}
    return {x for x in xs if held.intersection(evidence.moments(x))} if held else set()


def _is_suspect(graph: Graph, node: Node) -> bool:
    if node.gradient == "custom" or key(node.op) == "registerhook":
        return bool(node.inputs)
    if len(node.inputs) > 1 and is_crossed_loss(graph, node):
        return True
    return bool(node.inputs) and is_double_softmax(graph, node, producer_before_reshapes(graph, node.inputs[0]))
