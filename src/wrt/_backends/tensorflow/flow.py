"""The tensors between x and y that can still be asked about: what each is made from, and what a pass through it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wrt._backends.tensorflow.log import Log, Operation
from wrt._backends.tensorflow.thresholds import OPERATION_IN_NUMBERS, PUSH_COST_IN_PULLS
from wrt._core.flow import Flow, leads_unmixed
from wrt._core.plan import Address
from wrt._core.thresholds import MOST_OPERATIONS
from wrt._core.value import Value

if TYPE_CHECKING:
    from wrt._backends.tensorflow.recording import TensorFlowRecording

PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2"})


def flow(recording: TensorFlowRecording, y: Value, xs: Sequence[Value]) -> Flow | None:
    """The part of the run that leads from y to any x; None where nothing does, or where a gradient may take other ways."""
    log, path = recording.log, recording.path(y, xs)
    if not path or len(path) > MOST_OPERATIONS or any(map(log.is_opaque, path)):
        return None
    start, ends = recording.number(y), [recording.number(x) for x in xs]
    walk = _Walk(recording, set(path), set(ends))
    order, made_from = walk.from_y(start)
    number = {tensor: k for k, tensor in enumerate(order)}
    sources = [[number[tensor] for tensor in made] for made in made_from]
    mixing = frozenset(number[tensor] for tensor in order if tensor in walk.mixing)
    inner = tuple(number[end] for end in ends if end in number)

    def address(tensor: int) -> Address:
        """Which operation between x and y made it, in the order in which they ran: nothing that was freed changes that."""
        if order[tensor] in ends:
            return "x", ends.index(order[tensor])
        index = log.producer[order[tensor]]
        return path.index(index), log.operations[index].outputs.index(order[tensor])

    sizes = [log.size(tensor) for tensor in order]
    products, elements = ([work.get(tensor, 0.0) for tensor in order] for work in (walk.products, walk.elements))
    mixed = not leads_unmixed(sources, mixing, set(inner))
    return Flow(
        sizes, sources, products, elements, inner, mixed, PUSH_COST_IN_PULLS,
        lambda tensor: recording.lift_number(order[tensor], y.dtype),
        mixing=mixing, accelerated=recording.backend.arrays.accelerated(y), address=address,
    )  # fmt: skip


def at_address(recording: TensorFlowRecording, y: Value, xs: Sequence[Value], address: Any) -> Value | None:
    """The Value at an address that `Flow.address` gave in another run of the same program."""
    made_by, place = address
    if made_by == "x":
        return xs[place] if place < len(xs) else None
    path = recording.path(y, xs)
    outputs = recording.log.operations[path[made_by]].outputs if made_by < len(path) else ()
    return recording.lift_number(outputs[place], y.dtype) if place < len(outputs) else None


class _Walk:
    """Breadth first from y. A tensor that nobody keeps any more is passed through: what it is made of is taken for it."""

    def __init__(self, recording: TensorFlowRecording, path: set[int], ends: set[int]) -> None:
        self.log, self.path, self.ends = recording.log, path, ends
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
            alone = len(waiting) == 1 and not found  # everything that leads here passes the next operation
            operation = self.log.operations[self.log.producer[waiting.pop()]]
            products += _products(self.log, operation)
            elements += OPERATION_IN_NUMBERS + sum(map(self.log.size, operation.outputs))
            if alone and _mixes(self.log, operation, list(map(self._leads_to_x, operation.inputs))):
                self.mixing.add(tensor)
            for source in operation.inputs:
                if source in seen or not self._leads_to_x(source):
                    continue
                seen.add(source)
                if source in self.ends or self.log.at_hand(source) is not None:
                    found[source] = None
                else:
                    waiting.append(source)
        self.products[tensor], self.elements[tensor] = products, elements
        return list(found)

    def _leads_to_x(self, tensor: int) -> bool:
        return tensor in self.ends or self.log.producer.get(tensor) in self.path


def _products(log: Log, operation: Operation) -> float:
    """The multiplications of one pass: of a matrix product, each number that comes out with one axis of what goes in."""
    if operation.op not in PRODUCTS:
        return 0.0
    settings = operation.settings
    turned = settings.get("transpose_a") or settings.get("adj_x")
    inner = log.tensors[operation.inputs[0]][0][-2 if turned else -1]
    return float(inner * log.size(operation.outputs[0]))


def _mixes(log: Log, operation: Operation, leads_to_x: Sequence[bool]) -> bool:
    """One row times a matrix that does not depend on x: every number that comes out depends on every number of the row."""
    is_row = operation.op == "MatMul" and log.tensors[operation.outputs[0]][0][0] == 1
    return is_row and list(leads_to_x) == [True, False]
