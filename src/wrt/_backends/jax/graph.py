"""The recorded operations as plain data, and functional updates as the writes of a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from wrt._backends.jax import compat
from wrt._backends.jax.program import Op, Var
from wrt._core.graph import Gradient, Graph, Node, Tensor, Write
from wrt._core.index import Elements, Positions, region_words
from wrt._core.value import Side, last_written

if TYPE_CHECKING:
    from wrt._backends.jax.record import JaxRecord


@dataclass(slots=True)
class Buffer:
    """The versions of a buffer, from before its first update to the one that was asked about.

    `h = h.at[i].set(...)` is a new array each time to JAX. A chain of updates is one buffer as long as its arrays go by the
    same name: `z = x.at[0].set(1)` makes another array, of which x is no version.
    """

    record: JaxRecord
    versions: list[Var]

    def written(self, k: int) -> Positions:
        """Flat positions that the k-th update wrote; k counts from 1."""
        op = self.versions[k].op
        assert op is not None
        return region(self.record, op)

    def writes(self) -> list[Write]:
        shape = tuple(self.versions[-1].aval.shape)
        told = []
        for k in range(1, len(self.versions)):
            positions, op = self.written(k), self.versions[k].op
            assert op is not None
            told.append(Write(id(self.versions[0]), k, len(positions), region_words(positions, shape), op.where))
        return told

    def side(self, elements: Elements) -> Side:
        """Each element as the value that was last written there."""
        last = len(self.versions) - 1
        # what came from an array of another name is asked about as it stands here
        unwritten = last if self.record.named_apart(self.versions[0], self.versions[-1]) else 0
        regions = [self.written(k) for k in range(1, last + 1)]
        return last_written(elements, regions, [self.record.value_of(v) for v in self.versions], unwritten=unwritten)


def is_update(op: Op | None) -> bool:
    return op is not None and (op.name.startswith("scatter") or op.name == "dynamic_update_slice")


def buffer_of(record: JaxRecord, var: Var) -> Buffer | None:
    """The chain of updates that ends at a Var; None for an array made by one operation."""
    versions = [var]
    while is_update(versions[0].op):
        op = versions[0].op
        assert op is not None
        versions.insert(0, op.inputs[0])
        if record.named_apart(versions[0], var):
            break
    return Buffer(record, versions) if len(versions) > 1 else None


def region(record: JaxRecord, op: Op) -> Positions:
    """Which elements an update writes, found by letting it write ones into zeros."""
    shape = tuple(op.outputs[0].aval.shape)
    with compat.outside():
        ones: Any
        if op.name == "dynamic_update_slice":
            ones = np.ones(op.inputs[1].aval.shape, np.int8)
            starts = [record.program.value(v) for v in op.inputs[2:]]
            marks = jax.lax.dynamic_update_slice(jax.numpy.zeros(shape, np.int8), ones, starts)
        else:
            ones = jax.numpy.ones(op.inputs[2].aval.shape, np.int8)
            marks = jax.lax.scatter(
                jax.numpy.zeros(shape, np.int8),
                record.program.value(op.inputs[1]),
                ones,
                op.params["dimension_numbers"],
                mode=op.params["mode"],
            )
        return np.flatnonzero(np.asarray(marks))


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
