"""What a run is to move: the tensors that were made to have a gradient."""

from __future__ import annotations

from wrt._core.evidence import Evidence
from wrt._why.cause import key

FIRST_VALUE = key("AssignVariableOp")
"""What TensorFlow does with the constant that a variable is made of: the variable is what is trained."""


def leaves(evidence: Evidence) -> list[int]:
    """Tensors that were made to have a gradient, as they are last."""
    graph = evidence.graph
    last = {evidence.moments(k)[-1]: k for k in graph.tensors}
    first_values = {k for node in graph.nodes if key(node.op) == FIRST_VALUE for k in node.inputs}
    used = {k for node in graph.nodes if key(node.op) != FIRST_VALUE for k in node.inputs}
    found = []
    for tensor in graph.tensors.values():
        node = graph.producer(tensor.id)
        made = node is None or not node.inputs or node.op.startswith("Parameter")
        if made and tensor.requires_grad and (tensor.id in used or tensor.id not in first_values):
            found.append(last.get(tensor.id, tensor.id))
    return found
