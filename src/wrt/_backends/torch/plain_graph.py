"""The notes of a recording as plain data: operations, values, places, cuts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wrt._backends.torch.kinds import LEAVES_TENSORS
from wrt._backends.torch.twins import is_twin_source
from wrt._core.graph import Gradient, Graph, Node, Tensor, Write
from wrt._core.where import place

if TYPE_CHECKING:
    from wrt._backends.torch.listen import Operation
    from wrt._backends.torch.recording import TorchRecording


def plain_graph(record: TorchRecording) -> Graph:
    """Everything that was noted, without a tensor in it."""
    listener = record.listener
    graph = Graph("torch")
    names: dict[int, list[str]] = {}
    for name in record.names:
        for binding in record.names.all(name):
            names.setdefault(binding.object.number, []).append(name)
    spelled: dict[Any, str] = {}
    for number, made in enumerate(listener.values):
        dtype = made.dtype
        if dtype not in spelled:
            spelled[dtype] = str(dtype).removeprefix("torch.")
        named = tuple(names[number]) if number in names else ()
        graph.tensors[number] = Tensor(
            number, tuple(made.shape), spelled[dtype], made.operation, 0, named, made.requires_grad
        )
    used: set[int] = set()
    for number in range(len(listener.operations)):
        operation = listener.operation(number)
        graph.nodes.append(_node(number, operation, listener))
        used.update(operation.outputs)
    graph.inputs = [k for k in graph.tensors if k not in used]
    return graph


def _node(number: int, operation: Operation, listener: Any) -> Node:
    where = place(*operation.spot) if operation.spot else None
    write = None
    if operation.written:
        buffer, written, k = operation.written[0]
        touched = buffer.touched(k)
        write = Write(written, k, touched, f"{touched} elements", where)
    return Node(
        number,
        operation.name,
        tuple(operation.inputs),
        tuple(operation.outputs),
        where,
        operation.module,
        _gradient(number, operation, listener),
        write,
    )


def _gradient(number: int, operation: Operation, listener: Any) -> Gradient:
    """Whether the gradient goes where the value goes."""
    if operation.name in LEAVES_TENSORS:
        return "cut"
    flagged = {value for at, value, flag in listener.flags if flag and at < number} if listener.flags else ()
    carried = [k for k in operation.inputs if k in flagged or _carries(listener.values[k])]
    if not carried:
        return "none"
    made = [k for k in operation.outputs if k not in operation.inputs]
    if made and not any(_carries(listener.values[k]) and not _starts_anew(listener.values[k]) for k in made):
        return "cut"
    custom = [node for k in made if (node := listener.values[k].node) is not None]
    if custom and all(hasattr(node, "_forward_cls") for node in custom):
        return "custom"
    return "yes"


def _carries(made: Any) -> bool:
    return made.node is not None or made.requires_grad


def _starts_anew(made: Any) -> bool:
    """Whether its history begins with itself: nothing before it, although it was made by an operation."""
    return made.node is not None and is_twin_source(made.node)
