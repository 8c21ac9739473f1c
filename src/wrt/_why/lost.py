"""A result without a history, of which the engine says no more than that."""

from __future__ import annotations

from typing import Any

from wrt._core.evidence import Evidence
from wrt._core.finding import Finding
from wrt._core.graph import Graph
from wrt._why.leaves import leaves
from wrt._why.missing import missing
from wrt._why.paths import upstream
from wrt._why.question import Question, spoken


def lost(record: Any, y: int) -> tuple[Finding, ...]:
    """Why y, of a recorded run, has no history: where what was to be trained is lost, or that nothing was."""
    evidence: Evidence = record.evidence()
    graph = evidence.graph
    needed = upstream(graph, y)
    trained = [k for k in leaves(evidence) if not needed.isdisjoint(evidence.moments(k))]
    given = [k for k in sorted(needed) if _is_given(graph, k)]
    found: dict[tuple[str, int | None], Finding] = {}
    for x in trained or given:
        made = record.bound_at(y), record.bound_at(x)
        question = Question(evidence, y, x, (spoken(graph, y, "the result"), spoken(graph, x, "an input")), made=made)
        for finding in missing(question):
            found.setdefault((finding.cause, finding.line), finding)
    return tuple(found.values())


def _is_given(graph: Graph, tensor: int) -> bool:
    """Whether nothing was computed to make it."""
    maker = graph.producer(tensor)
    return (maker is None or not maker.inputs) and "float" in graph.tensors[tensor].dtype
