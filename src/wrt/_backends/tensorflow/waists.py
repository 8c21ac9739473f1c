"""The tensors between x and y that can still be asked about: what each is made from, and what a pass through it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wrt._backends.tensorflow.log import Log, Operation
from wrt._core.flow import Flow, leads_unmixed
from wrt._core.value import Value

if TYPE_CHECKING:
    from wrt._backends.tensorflow.recording import TensorFlowRecording

MOST_OPERATIONS = 2000
OVERHEAD = 180_000.0  # numbers that the rates of the cost model let through in the time that one eager operation takes
PUSH_COST = 1.8  # of a push next to a pull, as measured
PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2"})


def flow(recording: TensorFlowRecording, y: Value, xs: Sequence[Value]) -> Flow | None:
    """The part of the run that leads from y to any x; None where nothing does, or where a gradient may take other ways."""
    log = recording.log
    start, ends = recording.number(y), {recording.number(x) for x in xs}
    path = {index for end in ends for index in log.between(end, start)}
    if not path or len(path) > MOST_OPERATIONS or any(map(log.is_opaque, path)):
        return None
    walk = _Walk(recording, path, ends)
    order, made_from = walk.from_y(start)
    number = {tensor: k for k, tensor in enumerate(order)}
    sources = [[number[tensor] for tensor in made] for made in made_from]
    mixing = frozenset(number[tensor] for tensor in order if tensor in walk.mixing)
    inner = tuple(number[end] for end in ends if end in number)
    return Flow(
        [_size(log, tensor) for tensor in order],
        sources,
        [walk.products.get(tensor, 0.0) for tensor in order],
        [walk.elements.get(tensor, 0.0) for tensor in order],
        inner,
        not leads_unmixed(sources, mixing, set(inner)),
        PUSH_COST,
        lambda tensor: recording.lift_number(order[tensor], y.dtype),
        lambda: None,
        mixing,
    )


class _Walk:
    """Breadth first from y. A tensor that nobody keeps any more is passed through: what it is made of stands for it."""

    def __init__(self, recording: TensorFlowRecording, path: set[int], ends: set[int]) -> None:
        self.recording, self.log, self.path, self.ends = recording, recording.log, path, ends
        self.products: dict[int, float] = {}
        self.elements: dict[int, float] = {}
        self.mixing: set[int] = set()

    def from_y(self, start: int) -> tuple[list[int], list[list[int]]]:
        order, seen, made_from = [start], {start}, list[list[int]]()
        for tensor in order:  # grows while it is walked
            made = [] if tensor in self.ends else self._made_from(tensor)
            made_from.append(made)
            for source in made:
                if source not in seen:
                    seen.add(source)
                    order.append(source)
        return order, made_from

    def _made_from(self, tensor: int) -> list[int]:
        """The nearest tensors at hand that a tensor was computed from, as far as they lead to x."""
        found: dict[int, None] = {}
        products, elements = 0.0, 0.0
        waiting, seen = [tensor], {tensor}
        while waiting:
            operation = self.log.operations[self.log.producer[waiting.pop()]]
            products += _products(self.log, operation)
            elements += OVERHEAD + sum(_size(self.log, number) for number in operation.outputs)
            if _mixes(self.log, operation):
                self.mixing.add(tensor)
            for source in operation.inputs:
                if source in seen or not (source in self.ends or self.log.producer.get(source) in self.path):
                    continue
                seen.add(source)
                if source in self.ends or self.recording.at_hand(source) is not None:
                    found[source] = None
                else:
                    waiting.append(source)
        self.products[tensor], self.elements[tensor] = products, elements
        return list(found)


def _size(log: Log, number: int) -> int:
    return int(np.prod(log.tensors[number][0], dtype=np.int64))


def _said(operation: Operation) -> dict[str, Any]:
    return dict(zip(operation.attributes[::2], operation.attributes[1::2], strict=True))


def _products(log: Log, operation: Operation) -> float:
    """The multiplications of one pass: of a matrix product, each number that comes out with one axis of what goes in."""
    if operation.op not in PRODUCTS:
        return 0.0
    turned = _said(operation).get("transpose_a") or _said(operation).get("adj_x")
    inner = log.tensors[operation.inputs[0]][0][-2 if turned else -1]
    return float(inner * _size(log, operation.outputs[0]))


def _mixes(log: Log, operation: Operation) -> bool:
    """A matrix times one vector, which leads to x: every number that comes out depends on every number that goes in."""
    if operation.op != "MatMul":
        return False
    return log.tensors[operation.outputs[0]][0][0] == 1 and log.carries(operation.inputs[0])
