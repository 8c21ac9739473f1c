"""A recorded TensorFlow run under examination, as the user's own tape saw it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.events import Custom, Host, UserTape
from wrt._backends.tensorflow.log import Payload, Payloads
from wrt._backends.tensorflow.tensors import dense
from wrt._backends.tensorflow.unreached import arrays_from_outside
from wrt._core.evidence import Again, Event, Numbers, cotangents, last_line, user_codes
from wrt._core.graph import Graph, Node
from wrt._core.where import Where, function_name, place

if TYPE_CHECKING:
    from wrt._backends.tensorflow.recording import TensorFlowRecording

HOST = "numpy_function"


class FullGraph:
    """The operations of a run, and among them what the log keeps apart; `at`: how many operations had run before each node.

    A gradient written by hand is among the operations as one more, from its inputs to its outputs; numbers that were
    read into Python, and Python that was called with arrays, are operations without a gradient.
    """

    def __init__(self, recording: TensorFlowRecording) -> None:
        self.recording = recording
        self.log = recording.log
        self.payloads = Payloads(recording.log)
        plain = recording.graph
        self.graph = Graph("tensorflow", [], dict(plain.tensors), plain.inputs, plain.outputs)
        self.at: list[int] = []
        self._made_by: list[int | Custom | None] = []  # an operation of the log, or a rule written by hand
        self._interleave(plain)
        self._give_variables_their_shapes()

    def work(self, node: Node) -> Payload | Custom | None:
        """The tensors of a node, where it has some and they can be had."""
        made_by = self._made_by[node.id]
        return self.payloads.of(made_by) if isinstance(made_by, int) else made_by

    def via(self, node: Node) -> str:
        """The library function that the user's line called."""
        made_by = self._made_by[node.id]
        return self.log.operations[made_by].via.removesuffix("_v2") if isinstance(made_by, int) else ""

    def _interleave(self, plain: Graph) -> None:
        notes = self.recording.events
        extra: list[tuple[int, int, Any]] = [(c.at, 0, c) for c in notes.customs]
        extra += [(leak.after, 1, leak) for leak in self.log.leaks]
        extra += [(host.at, 2, host) for host in notes.hosts]
        extra.sort(key=lambda item: item[:2])
        for index, node in enumerate(plain.nodes):
            while extra and extra[0][0] <= index:
                self._insert(extra.pop(0)[2], index)
            self._append(replace(node, id=len(self.graph.nodes)), index, index)
        for _, _, item in extra:
            self._insert(item, len(plain.nodes))
        for node in self.graph.nodes:
            for output in node.outputs:
                known = self.graph.tensors[output]
                self.graph.tensors[output] = replace(known, node=node.id)

    def _insert(self, item: Any, at: int) -> None:
        where = place(*item.spot) if item.spot else None
        number = len(self.graph.nodes)
        known = self.graph.tensors
        if isinstance(item, Custom):
            made = tuple(k for t in item.outputs if (k := compat.number(t)) in known)
            given = tuple(self.log.number(compat.number(t)) for t in item.inputs)
            if made and all(k in known for k in given):
                self._stand_for(made)
                self._append(Node(number, item.name, given, made, where, gradient="custom"), item, at)
        elif isinstance(item, Host):
            given = tuple(k for t in item.inputs if (k := self.log.number(compat.number(t))) in known)
            made = tuple(k for t in item.outputs if (k := compat.number(t)) in known)
            self._append(Node(number, HOST, given, made, where, gradient="cut"), None, at)
        elif item.number in known:
            self._append(Node(number, item.how, (item.number,), (), where, gradient="cut"), None, at)

    def _stand_for(self, made: tuple[int, ...]) -> None:
        """What is inside a rule is not followed: the rule stands for it."""
        self.graph.nodes[:] = [
            replace(node, gradient="cut") if not set(made).isdisjoint(node.outputs) else node for node in self.graph.nodes
        ]

    def _append(self, node: Node, made_by: int | Custom | None, at: int) -> None:
        self.graph.nodes.append(node)
        self._made_by.append(made_by)
        self.at.append(at)

    def _give_variables_their_shapes(self) -> None:
        """A handle has no shape; what is read through it has."""
        tensors = self.graph.tensors
        for node in self.graph.nodes:
            if node.op == "ReadVariableOp":
                read, handle = tensors[node.outputs[0]], tensors[node.inputs[0]]
                tensors[handle.id] = replace(handle, shape=read.shape, dtype=read.dtype)
        for key in self.recording.keys.variables():
            number = self.log.number(key.number)
            if number in tensors:
                tensors[number] = replace(tensors[number], shape=key.shape, dtype=key.dtype.name)


class TensorFlowEvidence:
    """Everything `why` asks of one recording: what the user's own tape followed, from when on, why not the rest, and numbers."""

    events: Sequence[Event] = ()

    def __init__(self, recording: TensorFlowRecording) -> None:
        self.log = recording.log
        self.full = FullGraph(recording)
        self.payloads = self.full.payloads
        self.graph = self.full.graph
        self.y: int | None = None
        self.tape: UserTape | None = None  # the one of the user's that is meant; without it the recording's own counts
        self._watched: set[int] | None = None

    # ---------------------------------------------------------------- the user's tape

    def look_from(self, y: int) -> None:
        self.y, self.tape, self._watched = y, self._chosen(y), None

    def _chosen(self, y: int) -> UserTape | None:
        """The last tape that was open when y was made, or else before."""
        node = self.graph.producer(y)
        made = self.full.at[node.id] if node is not None else len(self.log.operations)
        earlier = [t for t in self.full.recording.events.tapes if t.start <= made]
        around = [t for t in earlier if t.covers(made)]
        return next(reversed(around or earlier), None)

    @property
    def watched(self) -> set[int]:
        """Tensors that the user's tape follows."""
        if self._watched is None:
            self._watched = set()
            if self.tape is not None:
                for node in self.graph.nodes:
                    self._watch(self.tape, node, self._watched)
                self._watched.update(number for _, number, _ in self.tape.watched)
        return self._watched

    def _watch(self, tape: UserTape, node: Node, watched: set[int]) -> None:
        at = self.full.at[node.id]
        if not tape.covers(at):
            return
        watched.update(number for when, number, _ in tape.watched if when <= at)
        if (node.op in compat.READS_VARIABLE or node.op == HOST) and tape.watches_variables:
            watched.update(k for k in node.inputs if self._is_variable(k) and self._trainable(k))
        if not watched.isdisjoint(node.inputs) and node.gradient in ("yes", "custom"):
            watched.update(node.outputs)

    def _is_variable(self, number: int) -> bool:
        return self.log.tensors[number][1] == compat.RESOURCE

    def _trainable(self, number: int) -> bool:
        for key in self.full.recording.keys.variables():
            if number in (key.number, self.log.number(key.number)):
                return bool(key.variable.trainable)
        return True

    def starts(self, tensor: int) -> int | None:
        if self.tape is None:
            return -1
        when = [w for w, number, _ in self.tape.watched if number == tensor]
        if when:
            nodes = self.graph.nodes
            return next((n.id - 1 for n in nodes if self.full.at[n.id] >= when[0]), len(nodes))
        return -1 if tensor in self.watched else None

    def off(self, node: Node) -> str:
        return "tape_closed" if self.tape is not None and not self.tape.covers(self.full.at[node.id]) else ""

    def unfollowed(self, tensor: int) -> tuple[str, Where | None, str] | None:
        """Why the user's tape does not follow a tensor."""
        tape = self.tape
        if tape is None:
            return None
        late = [spot for _, number, spot in tape.watched if number == tensor]
        if late:
            return "late_requires_grad", place(*late[0]) if late[0] else None, "it had been used before it was watched"
        if not self._trainable(tensor):
            return "not_requires_grad", None, "the variable has trainable=False, so no tape watches it by itself"
        if self._is_variable(tensor):
            led = self.log.ancestors([self.y])[0] if self.y is not None else set()
            read = next((n for n in self.graph.nodes if tensor in n.inputs and not led.isdisjoint(n.outputs)), None)
            if read is not None:
                return "tape_closed", self.outside(read), "the variable was read where the tape does not look"
        reassigned = self._was_variable(tensor)
        if reassigned is not None:
            return "variable_reassigned_to_tensor", reassigned, "the name meant a tf.Variable before, and means a tensor since"
        where = place(*tape.where) if tape.where else None
        return "unwatched", where, "no tape.watch() names it, and it is no variable"

    def _was_variable(self, tensor: int) -> Where | None:
        """Where a name that meant a variable came to mean this tensor."""
        for name in self.full.recording.names:
            for earlier, later in pairwise(self.full.recording.names.all(name)):
                if earlier.object.variable is not None and later.object.number == tensor:
                    return later.where
        return None

    def outside(self, node: Node) -> Where | None:
        """The line, in the function that opened the tape, in which something was computed after the tape had closed."""
        tape = self.tape
        if tape is None or tape.where is None or node.where is None:
            return None
        code = tape.where[0]
        if node.where.function == function_name(code) and node.where.file == code.co_filename:
            return node.where
        after = set(node.outputs)
        for later in self.graph.nodes[node.id :]:
            if not after.isdisjoint(later.inputs):
                after.update(later.outputs)
        bound = [b for name in self.full.recording.names for b in self.full.recording.names.all(name) if b.code is code]
        found = [b for b in bound if b.object.number in after]
        return min(found, key=lambda b: b.where.line).where if found else node.where

    def consumed(self, y: int) -> tuple[Where | None, str] | None:
        """A tape that answers once has answered for something else."""
        tape = self.tape
        if tape is None or tape.persistent or not tape.asked or any(y in asked.targets for asked in tape.asked):
            return None
        spot = tape.asked[0].where
        return (place(*spot) if spot else None), "this call uses the tape up, and it is not persistent"

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

    def passes(self, node: Node, output: int) -> bool:
        if node.gradient not in ("yes", "custom") or self.off(node):
            return False
        return self.log.tensors[output][1] in compat.CARRIES_GRADIENT or self.log.tensors[output][1] == compat.RESOURCE

    def requests(self) -> list[tuple[list[int], list[int]]]:
        """What the tapes of the user's own were asked for: losses, and what they are to move; of a loop, the last time."""
        known = self.graph.tensors
        last: dict[object, tuple[list[int], list[int]]] = {}
        for tape in self.full.recording.events.tapes:
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
        return self.full.via(node)

    # ---------------------------------------------------------------- numbers

    def value(self, tensor: int) -> Numbers | None:
        node = self.graph.producer(tensor)
        work = None if node is None else self.full.work(node)
        if node is None or not isinstance(work, Payload):
            return None
        made = [k for k in node.outputs if k >= 0]  # the others are variables, as they are since this operation
        return _numbers(work.outputs[made.index(tensor)]) if tensor in made else None

    def saved(self, node: Node) -> dict[str, Numbers]:
        work = self.full.work(node)
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

    def cotangents(self, y: int, seed: Numbers, xs: frozenset[int] | None = None) -> dict[int, Numbers | None]:
        """Operation by operation; a rule written by hand stands for what is inside it."""
        taken: set[int] = set()

        def passes(node: Node) -> bool:
            if node.gradient not in ("yes", "custom") or (taken.issuperset(node.outputs) and node.outputs):
                return False
            if node.gradient == "custom":
                taken.update(node.outputs)
            return True

        return cotangents(reversed(self.graph.nodes), y, seed, self.local, passes)

    def local(self, node: Node, cotangents: Sequence[Numbers | None]) -> list[Numbers | None]:
        work = self.full.work(node)
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
        work = self.full.work(node)
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
            with compat.off_tapes():
                return [_numbers(t) for t in run(given)]

        rule = next(user_codes(work.backward), None) if isinstance(work, Custom) else None
        inputs = tuple(n for t in kept if (n := _numbers(t)) is not None)
        if len(inputs) != len(kept) or (
            isinstance(work, Payload) and any(compat.kind(t) == compat.RESOURCE for t in work.inputs)
        ):
            return None
        name = node.op if rule is not None else ""
        precision = 2.3e-16 if all(t.dtype == tf.float64 for t in kept) else 1.2e-7
        numbers, line = tuple(node.inputs[k] for k in floats), None if rule is None else last_line(rule)
        return Again(inputs, numbers, call, name, line, precision)

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
            payload = self.payloads.of(index)
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
    tensor = dense(tensor)
    if not hasattr(tensor, "dtype") or compat.kind(tensor) == compat.RESOURCE:
        return None
    with compat.off_tapes():
        array = np.asarray(tensor)
    return array.astype(np.float64) if array.dtype.kind in "fiub" or array.dtype.name == "bfloat16" else None


def _like(cotangent: Numbers | None, tensor: Any) -> Any:
    if cotangent is None or compat.kind(tensor) not in compat.FLOATS:
        return None
    with compat.off_tapes():
        return tf.constant(np.asarray(cotangent).reshape(tuple(tensor.shape)).astype(tensor.dtype.as_numpy_dtype))
