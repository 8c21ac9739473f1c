"""Every operation of one run by the numbers of its tensors: the complete data flow, without the tensors.

A variable has one number until something writes to it, and a new one after each write, so that what was read before the
write does not seem to depend on it.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from wrt._backends.tensorflow import compat
from wrt._core.graph import Gradient, Graph, Node, Tensor, Write
from wrt._core.where import Spot, Where, place


class Operation(NamedTuple):
    """One operation that ran."""

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    spot: Spot | None
    layer: str
    stopped: bool  # every tape was told not to look
    attributes: Any = ()
    via: str = ""  # the function of the library that the user called

    @property
    def settings(self) -> dict[str, Any]:
        """Its attributes, which come as names and values in turn."""
        return dict(zip(self.attributes[::2], self.attributes[1::2], strict=True))


class Leak(NamedTuple):
    """Numbers of a tensor that were read into Python."""

    number: int
    after: int  # how many operations had run
    spot: Spot | None
    how: str = "numpy"

    @property
    def where(self) -> str:
        return f"what {self.how} writes" if self.how[0].isupper() else "Python"


class Log:
    """What ran, in order; `tensors` has the shape and dtype of every number, `producer` the operation that made it."""

    def __init__(self, start: int) -> None:
        self.start = start  # tensors with smaller numbers are older than the recording
        self.operations: list[Operation] = []
        self.tensors: dict[int, tuple[tuple[int, ...], int]] = {}
        self.producer: dict[int, int] = {}
        self.references: dict[int, Any] = {}  # number -> the tensor, or a weak reference to it
        self.first_seen: dict[int, int] = {}  # tensors that no recorded operation made -> operations before them
        self.from_numpy: dict[int, Spot | None] = {}  # arrays that became tensors while recording
        self.foreign: dict[int, Spot | None] = {}  # tensors that were made meanwhile, and not seen being made
        self.converted: set[int] = set()  # tensors made of Python numbers
        self.threads: list[tuple[int, Spot | None]] = []  # operations before other threads began to run
        self.leaks: list[Leak] = []
        self.current: dict[int, int] = {}  # handle of a variable -> its number since the last write
        self.blind: set[int] = set()  # operations whose gradient could not be recorded after the fact
        self._writes = 0

    @property
    def count(self) -> int:
        """How many operations have run."""
        return len(self.operations)

    def note(self, tensor: Any, op: str) -> int:
        """The number of a tensor that an operation made; what it can make again is not kept alive."""
        number = compat.number(tensor)
        self.tensors[number] = (compat.shape(tensor), compat.kind(tensor))
        self.references[number] = weakref.ref(tensor) if compat.gives_the_same_again(op) else tensor
        return number

    def add(self, operation: Operation) -> int:
        """One more operation."""
        index = len(self.operations)
        self.operations.append(operation)
        for number in operation.outputs:
            self.producer[number] = index
        return index

    def at_hand(self, number: int) -> Any:
        """A tensor by its number, if anybody keeps it."""
        found = self.references.get(number)
        return found() if type(found) is weakref.ref else found

    def meet(self, number: int) -> None:
        """A tensor that came from outside."""
        self.first_seen.setdefault(number, self.count)

    def rewrite(self, handle: int) -> int:
        """A new number for a variable after one more write."""
        self._writes += 1
        number = -self._writes
        self.tensors[number] = self.tensors[self.number(handle)]
        self.current[handle] = number
        return number

    def number(self, handle: int) -> int:
        return self.current.get(handle, handle)

    def size(self, number: int) -> int:
        return math.prod(self.tensors[number][0])

    # ---------------------------------------------------------------- data flow

    def where(self, number: int) -> Where | None:
        index = self.producer.get(number)
        spot = None if index is None else self.operations[index].spot
        return None if spot is None else place(*spot)

    def ancestors(self, numbers: Iterable[int]) -> tuple[set[int], set[int]]:
        """Every tensor these were computed from (themselves included), and the operations that did it."""
        waiting = list(numbers)
        tensors = set(waiting)
        operations: set[int] = set()
        while waiting:
            index = self.producer.get(waiting.pop())
            if index is None or index in operations:
                continue
            operations.add(index)
            for number in self.operations[index].inputs:
                if number not in tensors:
                    tensors.add(number)
                    waiting.append(number)
        return tensors, operations

    def between(self, x: int | Iterable[int], y: int) -> list[int]:
        """The operations on the way from x (from any of several) to y, in the order they ran; empty where none leads there."""
        _, candidates = self.ancestors([y])
        reached = {x} if isinstance(x, int) else set(x)
        on_the_way = []
        for index in sorted(candidates):
            operation = self.operations[index]
            if not reached.isdisjoint(operation.inputs):
                reached.update(operation.outputs)
                on_the_way.append(index)
        return on_the_way if y in reached else []

    def gradient(self, index: int) -> Gradient:
        """Whether a gradient passes through an operation."""
        operation = self.operations[index]
        if not any(self.carries(number) for number in operation.inputs):
            return "none"
        if compat.is_call(operation.op):
            return "cut" if index in self.blind else "yes"
        if operation.stopped or index in self.blind or not any(map(self.carries, operation.outputs)):
            return "cut"
        return "cut" if compat.gradient_is_none(operation.op) or _writes(operation) else "yes"

    def is_opaque(self, index: int) -> bool:
        """Whether gradients may take another way than through the operation: a rule of the user's own, a variable."""
        operation = self.operations[index]
        handles = any(self.tensors[number][1] == compat.RESOURCE for number in operation.inputs)
        return operation.stopped or index in self.blind or compat.is_call(operation.op) or handles

    def carries(self, number: int) -> bool:
        """Whether a tensor can have a gradient."""
        return self.tensors[number][1] in compat.CARRIES_GRADIENT or self.tensors[number][1] == compat.RESOURCE

    # ---------------------------------------------------------------- plain data

    def graph(
        self, inputs: list[int], outputs: list[int], names: Callable[[int], tuple[str, ...]],
        write: Callable[[int], Write | None],
    ) -> Graph:  # fmt: skip
        graph = Graph("tensorflow", inputs=inputs, outputs=outputs)
        for number, (shape, enum) in self.tensors.items():
            made_by, place_of = self.producer.get(number), self._output_place(number)
            dtype, carries = compat.dtype_of(enum).name, self.carries(number)
            graph.tensors[number] = Tensor(number, shape, dtype, made_by, place_of, names(number), carries)
        for index, operation in enumerate(self.operations):
            op, given, made, spot, layer = operation[:5]
            where = None if spot is None else place(*spot)
            node = Node(index, op, given, made, where, layer, self.gradient(index), write(index), self._notes(index))
            graph.nodes.append(node)
        return graph

    def _output_place(self, number: int) -> int:
        index = self.producer.get(number)
        return 0 if index is None else self.operations[index].outputs.index(number)

    def _notes(self, index: int) -> tuple[str, ...]:
        operation = self.operations[index]
        if operation.stopped:
            return ("every tape was stopped here: a custom gradient, or a recomputed block",)
        if _writes(operation):
            return ("a write to a variable carries no gradient",)
        if index in self.blind:
            return ("a compiled function met this tensor before the recording knew it",)
        return ()


def _writes(operation: Operation) -> bool:
    return not compat.is_call(operation.op) and any(number < 0 for number in operation.outputs)


class Payload(NamedTuple):
    """The tensors of one operation, and how it was called."""

    inputs: tuple[Any, ...]
    attributes: Any
    outputs: tuple[Any, ...]
    via: str


class Payloads:
    """What every operation was given and gave, for one question: it goes away again with all that had to be computed.

    A tape keeps the tensors that its gradients need, and names keep what they stand for. The recording keeps no other
    alive: one that has gone is computed again, by the operation that made it. What could come out differently (random
    numbers, what a variable was, a compiled function) is kept, as is everything that was there before.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._computed: dict[int, Any] = {}

    def of(self, index: int) -> Payload | None:
        """The tensors of an operation; None where one of them can no longer be had."""
        operation = self.log.operations[index]
        inputs = [self.tensor(number) for number in operation.inputs]
        outputs = [self.tensor(number) for number in operation.outputs if number >= 0]
        if any(tensor is None for tensor in (*inputs, *outputs)):
            return None
        return Payload(tuple(inputs), operation.attributes, tuple(outputs), operation.via)

    def tensor(self, number: int) -> Any:
        """A tensor by its number; None where it can no longer be had."""
        found = self._at_hand(number)
        if found is None and number in self.log.producer:
            self._compute(number)
            found = self._at_hand(number)
        return found

    def _at_hand(self, number: int) -> Any:
        found = self.log.at_hand(number)
        return self._computed.get(number) if found is None else found

    def _compute(self, number: int) -> None:
        """Run the operations that lead to a tensor from others that are there, in the order in which they ran."""
        needed: set[int] = set()
        waiting = [number]
        while waiting:
            one = waiting.pop()
            index = self.log.producer.get(one)
            if self._at_hand(one) is None and index is not None and index not in needed:
                needed.add(index)
                waiting.extend(self.log.operations[index].inputs)
        for index in sorted(needed):
            operation = self.log.operations[index]
            inputs = [self._at_hand(one) for one in operation.inputs]
            made = [one for one in operation.outputs if one >= 0]
            if any(one is None for one in inputs):
                continue
            try:
                with compat.off_tapes():
                    again = compat.run_again(operation.op, inputs, operation.attributes, len(made))
            except Exception:  # an operation that tells too little of how it was called: its numbers are gone
                continue
            self._computed.update(zip(made, again, strict=True))
