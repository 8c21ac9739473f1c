"""The recorded operations as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wrt._backends.jax.program import Op, Var
from wrt._backends.jax.writes import is_update, region
from wrt._core.graph import Gradient, Graph, Node, Tensor, Write
from wrt._core.index import region_words

if TYPE_CHECKING:
    from wrt._backends.jax.record import JaxRecord


def plain_graph(record: JaxRecord, ops: Sequence[Op], inputs: Sequence[Var], outputs: Sequence[Var]) -> Graph:
    """Operations in order, and the arrays between them, by number."""
    graph = Graph("jax")
    numbers: dict[Var, int] = {}
    moving = {v for v in inputs if v.differentiable}

    def number(var: Var, node: int | None) -> int:
        if var not in numbers:
            numbers[var] = len(numbers)
            names = tuple(sorted(record.names_of(var)))
            graph.tensors[numbers[var]] = Tensor(
                numbers[var],
                tuple(var.aval.shape),
                str(var.aval.dtype),
                node,
                var.output,
                names,
                var.differentiable,
            )
        return numbers[var]

    graph.inputs = [number(v, None) for v in inputs]
    chains: dict[Var, tuple[int, int]] = {}
    for op in ops:
        node = len(graph.nodes)
        given = tuple(number(v, None) for v in op.inputs)
        made = tuple(number(v, node) for v in op.outputs)
        carried = any(v in moving for v in op.inputs)
        if carried and not op.cuts:
            moving.update(v for v in op.outputs if v.differentiable)
        write = _write(record, op, chains, numbers)
        graph.nodes.append(Node(node, op.name, given, made, op.where, str(op.source.name_stack), _gradient(op, carried), write))
    graph.outputs = [number(v, None) for v in outputs]
    return graph


def _gradient(op: Op, carried: bool) -> Gradient:
    if op.name.startswith("custom_"):
        return "custom"
    if op.cuts:
        return "cut" if carried else "none"
    return "yes" if any(v.differentiable for v in op.inputs) else "none"


def _write(record: JaxRecord, op: Op, chains: dict[Var, tuple[int, int]], numbers: dict[Var, int]) -> Write | None:
    if not is_update(op):
        return None
    buffer, k = chains.get(op.inputs[0], (numbers[op.inputs[0]], 0))
    chains[op.outputs[0]] = (buffer, k + 1)
    positions = region(record, op)
    return Write(buffer, k + 1, len(positions), region_words(positions, tuple(op.outputs[0].aval.shape)), op.where)
