"""The notes of a recording as a graph: operations, values, places, cuts; and which operation made an autograd node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wrt._backends.torch.compat import is_custom, is_leaf_node
from wrt._backends.torch.kinds import LEAVES_TENSORS
from wrt._backends.torch.recording.entries import is_shadow_source
from wrt._core.graph import Gradient, Graph, Node, Tensor, Write
from wrt._core.where import place

if TYPE_CHECKING:
    from wrt._backends.torch.recording.recorder import Operation, Recorder
    from wrt._backends.torch.recording.recording import TorchRecording


def plain_graph(record: TorchRecording) -> Graph:
    """Everything that was noted, without a tensor in it."""
    recorder = record.recorder
    graph = Graph("torch")
    names: dict[int, list[str]] = {}
    for name in record.names:
        for binding in record.names.all(name):
            names.setdefault(binding.object.number, []).append(name)
    for number, made in enumerate(recorder.values):
        dtype, named = str(made.dtype).removeprefix("torch."), tuple(names.get(number, ()))
        graph.tensors[number] = Tensor(number, tuple(made.shape), dtype, made.operation, 0, named, made.requires_grad)
    graph.nodes = [_node(number, recorder.operation(number), recorder) for number in range(len(recorder.operations))]
    made_by_operations = {k for node in graph.nodes for k in node.outputs}
    graph.inputs = [k for k in graph.tensors if k not in made_by_operations]
    return graph


def _node(number: int, operation: Operation, recorder: Recorder) -> Node:
    where = place(*operation.spot) if operation.spot else None
    write = None
    if operation.written:
        buffer, written, k = operation.written[0]
        touched = buffer.extent(k)
        write = Write(written, k, touched, f"{touched} elements", where)
    ends = tuple(operation.inputs), tuple(operation.outputs)
    return Node(number, operation.name, *ends, where, operation.module, _gradient(number, operation, recorder), write)


def _gradient(number: int, operation: Operation, recorder: Recorder) -> Gradient:
    """Whether the gradient goes where the value goes."""
    if operation.name in LEAVES_TENSORS:
        return "cut"
    flagged = {value for at, value, flag in recorder.flags if flag and at < number} if recorder.flags else ()
    carried = [k for k in operation.inputs if k in flagged or _carries(recorder.values[k])]
    if not carried:
        return "none"
    if operation.name in ("data=", "outside"):
        return "cut"
    made = [k for k in operation.outputs if k not in operation.inputs]
    if made and not any(_carries(recorder.values[k]) and not _starts_anew(recorder.values[k]) for k in made):
        return "cut"
    custom = [node for k in made if (node := recorder.values[k].node) is not None]
    if custom and all(map(is_custom, custom)):
        return "custom"
    return "yes"


def _carries(made: Any) -> bool:
    return made.node is not None or made.requires_grad


def _starts_anew(made: Any) -> bool:
    """Whether its history begins with itself: nothing before it, although it was made by an operation."""
    return made.node is not None and is_shadow_source(made.node)


def operations_of_nodes(recorder: Recorder) -> dict[Any, int]:
    """Autograd node -> the number of the operation that made it.

    An operation notes the node of its result. Nodes it made on the way (a composite operation leaves several) are those
    that can be reached from there and were not made by an earlier operation.
    """
    made: dict[Any, int] = {}
    results: dict[int, list[Any]] = {}
    for value in recorder.values:
        if value.operation is not None and value.node is not None:
            results.setdefault(value.operation, []).append(value.node)
    for operation in sorted(results):
        waiting = results[operation]
        while waiting:
            node = waiting.pop()
            if node not in made and not is_leaf_node(node):
                made[node] = operation
                waiting.extend(upstream for upstream, _ in node.next_functions if upstream is not None)
    return made
