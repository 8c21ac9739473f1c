"""Everything that looks wrong in a run: every parameter and input that should have a gradient of every result."""

from __future__ import annotations

from wrt._core.finding import Finding, Findings
from wrt._core.evidence import Evidence
from wrt._core.graph import Graph
from wrt._why.question import Question, spoken
from wrt._why.why import examine

MOST = 200
EXPECTED = frozenset(["not_requires_grad", "not_indexed", "mask"])
"""Right answers to a question that nobody asked: frozen layers, rows that are not in the batch, masks."""


def survey(evidence: Evidence) -> Findings:
    """What `why` finds for each leaf that requires grad, with respect to each result the user differentiates."""
    graph = evidence.graph
    found: dict[tuple[str, str | None, int | None], Finding] = {}
    for y in _results(evidence, graph):
        shared: dict[int, object] | None = None
        for x in _leaves(evidence, graph):
            question = Question(evidence, y, x, (spoken(graph, y, "the result"), spoken(graph, x, "an input")))
            if not question.route.reaches and not question.route.uses:
                continue  # of another model, or of another step
            if shared is not None:
                question.__dict__["cotangents"] = shared  # one pass for all leaves
            for finding in examine(question):
                if finding.certain and finding.cause not in EXPECTED:
                    found.setdefault((finding.cause, finding.file, finding.line), finding)
            shared = question.__dict__.get("cotangents", shared)
    return Findings(tuple(found.values()), "why, for everything in this run")


def _results(evidence: Evidence, graph: Graph) -> list[int]:
    """What the user called backward on; otherwise what the run returned, or its last scalar."""
    last = {e.where: e.values for e in evidence.events if e.kind == "backward"}
    roots = [k for values in last.values() for k in values]  # of a loop, the last time round
    if roots or graph.outputs:
        return list(dict.fromkeys(roots or graph.outputs))
    used = {k for node in graph.nodes for k in node.inputs}
    ends = [k for node in graph.nodes for k in node.outputs if k not in used and "float" in graph.tensors[k].dtype]
    return ends[-1:]


def _leaves(evidence: Evidence, graph: Graph) -> list[int]:
    """Tensors that were made to have a gradient."""
    found = []
    latest = {k: evidence.moments(k)[-1] for k in graph.tensors}
    last = {first: k for k, first in latest.items()}  # a parameter has a new value after every step: ask about the last
    for tensor in graph.tensors.values():
        node = graph.producer(tensor.id)
        made = node is None or not node.inputs or node.op.startswith("Parameter")
        if made and tensor.requires_grad:
            found.append(last.get(tensor.id, tensor.id))
    return found[:MOST]

