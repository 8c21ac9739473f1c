"""Everything that looks wrong in a run: what the user trains, with respect to what it is trained by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from wrt._core.evidence import Evidence
from wrt._core.finding import Finding, Findings
from wrt._core.graph import Graph
from wrt._why.doubt import doubtful
from wrt._why.leaves import leaves
from wrt._why.question import Question, spoken
from wrt._why.why import examine

MOST = 200
EXPECTED = frozenset(["not_requires_grad", "not_indexed", "mask", "invariant_output", "tie_subgradient"])
"""Right answers to a question that nobody asked: frozen layers, rows that are not in the batch, a bias before a norm."""


def survey(evidence: Evidence) -> Findings:
    """What `why` finds, with evidence, for each tensor that should have a gradient."""
    found: dict[tuple[str, str | None, int | None], Finding] = {}
    for ys, xs in _groups(evidence):
        passes: dict[int, object] = {}
        for x in doubtful(evidence, ys, xs[:MOST]):
            for finding in _one(evidence, ys, x, passes):
                if finding.certain and finding.cause not in EXPECTED:
                    found.setdefault((finding.cause, finding.file, finding.line), finding)
    return Findings(tuple(found.values()), "why, for everything in this run")


def _one(evidence: Evidence, ys: list[int], x: int, passes: dict[int, object]) -> Iterator[Finding]:
    """A tensor that any of several losses reaches is judged by those; otherwise by the last one."""
    graph = evidence.graph
    names = spoken(graph, x, "an input")
    questions = [Question(evidence, y, x, (spoken(graph, y, "the result"), names)) for y in ys]
    reached = [q for q in questions if q.route.connected]
    for question in reached or questions[-1:]:
        if question.y in passes:
            question.__dict__["cotangents"] = passes[question.y]  # one pass for all of them
        elif question in reached:
            with suppress(Exception):  # what the engine refuses is said by the examination
                passes[question.y] = question.cotangents
        yield from examine(question)


def _groups(evidence: Evidence) -> Iterator[tuple[list[int], list[int]]]:
    """Losses, and what they are to move: what a tape was asked for; the parameters of the optimizer that steps next;
    without either, every leaf."""
    asked: Any = getattr(evidence, "asked", None)  # TensorFlow alone has tapes that are asked
    groups = [] if asked is None else asked()
    if groups:
        yield from groups
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
        yield ys, leaves(evidence)


def _results(graph: Graph) -> list[int]:
    """What the run returned, or the last thing it made."""
    if graph.outputs:
        return list(dict.fromkeys(graph.outputs))
    used = {k for node in graph.nodes for k in node.inputs}
    ends = [k for node in graph.nodes for k in node.outputs if k not in used and "float" in graph.tensors[k].dtype]
    return ends[-1:]
