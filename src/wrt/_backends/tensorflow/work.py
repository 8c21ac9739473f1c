"""What every operation was given and gave, found again when somebody asks.

A tape keeps the tensors that its gradients need, and names keep what they stand for. The recording keeps no other alive:
it holds them weakly, and one that has gone is computed again, by the operation that made it. What could come out
differently (random numbers, what a variable held, a compiled function) is held on to, as is everything that was there
before.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.log import Log


class Payload(NamedTuple):
    """The tensors of one operation, and how it was called."""

    inputs: tuple[Any, ...]
    attributes: Any
    outputs: tuple[Any, ...]
    via: str


class Work:
    """The tensors of a log by their numbers, for one question: it goes away again with all that had to be computed."""

    def __init__(self, log: Log) -> None:
        log.read()
        self.log = log
        self._computed: dict[int, Any] = {}

    def payload(self, index: int) -> Payload | None:
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
        held = self.log.held.get(number)
        found = held() if type(held) is weakref.ref else held
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
                with compat.undisturbed():
                    again = compat.run_again(operation.op, inputs, operation.attributes, len(made))
            except Exception:  # an operation that tells too little of how it was called: its numbers are gone
                continue
            self._computed.update(zip(made, again, strict=True))
