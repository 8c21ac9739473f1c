"""Everything that looks wrong in a run: every parameter and input that should have a gradient of every result."""

from __future__ import annotations

from wrt._core.finding import Finding, Findings
from wrt._core.graph import Graph
from wrt._notation.trace import Trace
from wrt._why.question import Question
from wrt._why.why import examine

MOST = 200


def survey(t: Trace) -> Findings:
    """What `why` finds for each leaf that requires grad, with respect to each result the user differentiates."""
    record = t._one
    evidence = record.evidence()  # type: ignore[attr-defined]
    graph: Graph = evidence.graph
    found: dict[tuple[str, str | None, int | None], Finding] = {}
    for y in _results(evidence, graph):
        for x in _leaves(evidence, graph):
            names = (_name(graph, y, "the result"), _name(graph, x, "an input"))
            for finding in examine(Question(evidence, y, x, names)):
                if finding.certain:
                    found.setdefault((finding.cause, finding.file, finding.line), finding)
    return Findings(tuple(found.values()), "why, for everything in this run")


def _results(evidence: object, graph: Graph) -> list[int]:
    """What the user called backward on; otherwise what the run returned, or its last scalar."""
    roots = [k for e in evidence.events if e.kind == "backward" for k in e.values]  # type: ignore[attr-defined]
    if roots or graph.outputs:
        return list(dict.fromkeys(roots or graph.outputs))
    used = {k for node in graph.nodes for k in node.inputs}
    ends = [k for node in graph.nodes for k in node.outputs if k not in used and "float" in graph.tensors[k].dtype]
    return ends[-1:]


def _leaves(evidence: object, graph: Graph) -> list[int]:
    """Tensors that were made to have a gradient."""
    found = []
    for tensor in graph.tensors.values():
        node = graph.producer(tensor.id)
        made = node is None or not node.inputs or node.op.startswith("Parameter")
        if made and tensor.requires_grad:
            found.append(tensor.id)
    return found[:MOST]


def _name(graph: Graph, tensor: int, otherwise: str) -> str:
    names = graph.tensors[tensor].names
    return names[-1] if names else otherwise
