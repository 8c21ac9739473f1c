"""A recorded TensorFlow run under examination, as the user's own tape saw it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.cut import arrays_from_outside
from wrt._backends.tensorflow.events import Custom
from wrt._backends.tensorflow.examined import Examined
from wrt._backends.tensorflow.followed import Followed
from wrt._backends.tensorflow.work import Payload
from wrt._core import by_hand
from wrt._core.evidence import Again, Event, Numbers
from wrt._core.graph import Node
from wrt._core.where import Where, place

if TYPE_CHECKING:
    from wrt._backends.tensorflow.recording import TensorFlowRecording


class TensorFlowEvidence:
    """Everything `why` asks of one recording."""

    events: Sequence[Event] = ()

    def __init__(self, recording: TensorFlowRecording) -> None:
        self.log = recording.log
        self.examined = Examined(recording)
        self.kept = self.examined.kept
        self.graph = self.examined.graph
        self.followed = Followed(self.examined)

    # ---------------------------------------------------------------- the user's tape

    def look_from(self, y: int) -> None:
        """Choose the tape that is meant."""
        self.followed = Followed(self.examined, y)

    def moments(self, tensor: int) -> list[int]:
        """A variable has another number after every write."""
        found = [tensor]
        while found[-1] < 0:
            written = self.log.operations[self.log.producer[found[-1]]]
            place = [k for k in written.outputs if k < 0].index(found[-1])
            handles = [k for k in written.inputs if self.log.tensors[k][1] == compat.RESOURCE]
            if place >= len(handles) or handles[place] in found:
                break
            found.append(handles[place])
        return found

    def starts(self, tensor: int) -> int | None:
        return self.followed.starts(tensor)

    def passes(self, node: Node, output: int) -> bool:
        if node.gradient not in ("yes", "custom") or self.off(node):
            return False
        return self.log.tensors[output][1] in compat.CARRIES_GRADIENT or self.log.tensors[output][1] == compat.RESOURCE

    def off(self, node: Node) -> str:
        return self.followed.off(node)

    def unfollowed(self, tensor: int) -> tuple[str, Where | None, str] | None:
        return self.followed.unfollowed(tensor)

    def outside(self, node: Node) -> Where | None:
        return self.followed.outside(node)

    def consumed(self, y: int) -> tuple[Where | None, str] | None:
        return self.followed.consumed(y)

    def requests(self) -> list[tuple[list[int], list[int]]]:
        """What the tapes of the user's own were asked for: losses, and what they are to move; of a loop, the last time."""
        known = self.graph.tensors
        last: dict[object, tuple[list[int], list[int]]] = {}
        for tape in self.examined.recording.notes_for_why.tapes:
            for one in tape.asked:
                ys = [k for k in one.targets if k in known]
                xs = [k for source in one.sources if (k := self._as_of(source, one.at)) in known]
                if ys and xs:
                    last[one.where] = (ys, xs)
        return list(last.values())

    def _as_of(self, tensor: int, at: int) -> int:
        """The number that a tensor, or a variable that was written since, had after so many operations."""
        return next(k for k in self.moments(self.log.number(tensor)) if k >= 0 or self.log.producer[k] < at)

    def unrecorded(self, y: int, x: int) -> list[Where | None]:
        """Where y takes what nobody saw being made: NumPy reads the memory of a tensor without asking anybody."""
        return [place(*spot) if spot else None for spot in arrays_from_outside(self.log, y, x)]

    def refused(self, y: int, x: int, path: Sequence[Node]) -> list[tuple[str, Node, str]]:
        return []

    def via(self, node: Node) -> str:
        return self.examined.via(node)

    # ---------------------------------------------------------------- numbers

    def value(self, tensor: int) -> Numbers | None:
        node = self.graph.producer(tensor)
        work = None if node is None else self.examined.work(node)
        if node is None or not isinstance(work, Payload):
            return None
        made = [k for k in node.outputs if k >= 0]  # the others are variables, as they are since this operation
        return _numbers(work.outputs[made.index(tensor)]) if tensor in made else None

    def saved(self, node: Node) -> dict[str, Numbers]:
        work = self.examined.work(node)
        if not isinstance(work, Payload) or not work.inputs or compat.kind(work.inputs[0]) not in compat.FLOATS:
            return {}
        found = _numbers(work.inputs[0])
        return {} if found is None else {"self": found}

    def mutates(self, node: Node) -> bool:
        return False

    def gradient_attribute(self, tensor: int) -> Numbers | None:
        return None

    def gradient(self, y: int, seed: Numbers, x: int) -> Numbers | None:
        return self.cotangents(y, seed).get(x)

    def largest(self, y: int, seed: Numbers, xs: Sequence[int]) -> list[float | None] | None:
        return None

    def cotangents(self, y: int, seed: Numbers) -> dict[int, Numbers | None]:
        """Operation by operation; a rule written by hand stands for what is inside it."""
        taken: set[int] = set()

        def passes(node: Node) -> bool:
            if node.gradient not in ("yes", "custom") or (taken.issuperset(node.outputs) and node.outputs):
                return False
            if node.gradient == "custom":
                taken.update(node.outputs)
            return True

        return by_hand.cotangents(reversed(self.graph.nodes), y, seed, self.local, passes)

    def local(self, node: Node, cotangents: Sequence[Numbers | None]) -> list[Numbers | None]:
        work = self.examined.work(node)
        if node.op == "ReadVariableOp":
            return [cotangents[-1]]
        if work is None:
            return [None] * len(node.inputs)
        outputs = work.outputs
        seeds = [_like(c, t) for c, t in zip(cotangents[len(cotangents) - len(outputs) :], outputs, strict=False)]
        with compat.sweeping():
            if isinstance(work, Custom):
                pulled = _flat(
                    work.backward(*[s if s is not None else tf.zeros_like(t) for s, t in zip(seeds, outputs, strict=True)])
                )
            else:
                pulled = compat.local_pull(node.op, work.inputs, work.attributes, outputs, seeds)
        found: list[Numbers | None] = [None] * len(node.inputs)
        for k, g in enumerate(pulled[: len(node.inputs)]):
            numbers = _numbers(g)
            first = node.inputs.index(node.inputs[k])
            if numbers is not None:
                known = found[first]
                found[first] = numbers if known is None or first == k else known + numbers
        return found

    def push(self, node: Node, place: int, tangent: Numbers) -> list[Numbers | None] | None:
        """By the difference quotient of the operation itself: exact enough to see which elements move."""
        again = self.again(node)
        if again is None or node.inputs[place] not in again.numbers:
            return None
        at = again.numbers.index(node.inputs[place])
        step = 1e-2 * max(1.0, float(np.max(np.abs(again.inputs[at]))) if again.inputs[at].size else 1.0)
        try:
            here = again.run(again.inputs)
            there = again.run([i + step * tangent if k == at else i for k, i in enumerate(again.inputs)])
        except Exception:
            return None
        return [None if a is None or b is None else (b - a) / step for a, b in zip(here, there, strict=True)]

    def again(self, node: Node) -> Again | None:
        work = self.examined.work(node)
        if work is None:
            return None
        floats = [k for k, t in enumerate(work.inputs) if compat.kind(t) in compat.FLOATS and k < len(node.inputs)]
        if isinstance(work, Custom):
            run: Callable[[list[Any]], list[Any]] = functools.partial(self._inside, work)
            floats = [k for k, t in enumerate(work.inputs) if compat.kind(t) in compat.FLOATS]
        else:
            run = functools.partial(_run_payload, node.op, work)
        kept = [work.inputs[k] for k in floats]

        def call(inputs: Sequence[Numbers]) -> list[Numbers | None]:
            given = list(work.inputs)
            for k, array, like in zip(floats, inputs, kept, strict=True):
                given[k] = tf.constant(np.asarray(array).astype(like.dtype.as_numpy_dtype))
            with compat.undisturbed():
                return [_numbers(t) for t in run(given)]

        rule = next(by_hand.user_codes(work.backward), None) if isinstance(work, Custom) else None
        inputs = tuple(n for t in kept if (n := _numbers(t)) is not None)
        if len(inputs) != len(kept) or (
            isinstance(work, Payload) and any(compat.kind(t) == compat.RESOURCE for t in work.inputs)
        ):
            return None
        name = node.op if rule is not None else ""
        precision = 2.3e-16 if all(t.dtype == tf.float64 for t in kept) else 1.2e-7
        return Again(
            inputs,
            tuple(node.inputs[k] for k in floats),
            call,
            name,
            None if rule is None else by_hand.last_return(rule),
            precision,
        )

    def _inside(self, custom: Custom, given: list[Any]) -> list[Any]:
        """The operations between the inputs and the outputs of a function with a gradient of its own, run again."""
        values = {compat.number(t): v for t, v in zip(custom.inputs, given, strict=True)}
        reads = {op.outputs[-1]: op.inputs[0] for op in self.log.operations if op.op == "ReadVariableOp"}
        by_handle = {reads[k]: v for k, v in values.items() if k in reads}
        values.update((k, by_handle[handle]) for k, handle in reads.items() if handle in by_handle)  # a variable, read inside
        wanted = [compat.number(t) for t in custom.outputs]
        _, needed = self.log.ancestors(wanted)
        for index in sorted(needed):
            operation = self.log.operations[index]
            payload = self.kept.payload(index)
            inside = any(k in values for k in operation.inputs) and operation.op != "ReadVariableOp"
            if payload is None or not inside:
                continue
            inputs = [values.get(k, t) for k, t in zip(operation.inputs, payload.inputs, strict=True)]
            made = compat.run_again(operation.op, inputs, payload.attributes, len(payload.outputs))
            values.update(zip(operation.outputs[-len(payload.outputs) :], made, strict=True))
        return [values.get(k, t) for k, t in zip(wanted, custom.outputs, strict=True)]


def _run_payload(op: str, work: Payload, given: list[Any]) -> list[Any]:
    return compat.run_again(op, given, work.attributes, len(work.outputs))


def _flat(pulled: Any) -> list[Any]:
    if isinstance(pulled, tuple) and len(pulled) == 2 and isinstance(pulled[0], (list, tuple)):
        pulled = [*pulled[0], *pulled[1]]
    return list(pulled) if isinstance(pulled, (list, tuple)) else [pulled]


def _numbers(tensor: Any) -> Numbers | None:
    if tensor is None:
        return None
    if isinstance(tensor, tf.IndexedSlices):
        tensor = tf.convert_to_tensor(tensor)
    if not hasattr(tensor, "dtype") or compat.kind(tensor) == compat.RESOURCE:
        return None
    with compat.undisturbed():
        array = np.asarray(tensor)
    return array.astype(np.float64) if array.dtype.kind in "fiub" or array.dtype.name == "bfloat16" else None


def _like(cotangent: Numbers | None, tensor: Any) -> Any:
    if cotangent is None or compat.kind(tensor) not in compat.FLOATS:
        return None
    with compat.undisturbed():
        return tf.constant(np.asarray(cotangent).reshape(tuple(tensor.shape)).astype(tensor.dtype.as_numpy_dtype))
