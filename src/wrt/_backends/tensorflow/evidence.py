"""A recorded TensorFlow run under examination, as the user's own tape saw it.

The operations are those of the log; a gradient written by hand stands among them as one more, from its inputs to its
outputs, and numbers that were read into Python as operations without a result.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.events import Custom, Host, Payload, UserTape
from wrt._core.evidence import Again, Event, Numbers
from wrt._core.graph import Graph, Node
from wrt._core.where import Where, function_name, place, user_files

if TYPE_CHECKING:
    from wrt._backends.tensorflow.recording import TensorFlowRecording

WRAPPERS = frozenset(
    ["error_handler", "op_dispatch_handler", "binary_op_wrapper", "r_binary_op_wrapper", "new_func", "wrapper",
     "_read_variable_op", "__call__", "__add__", "run_op", "tf_method", "_run_op"]
)  # fmt: skip
HOST = "numpy_function"


class TensorFlowEvidence:
    """Everything `why` asks of one recording."""

    def __init__(self, recording: TensorFlowRecording) -> None:
        self.recording = recording
        self.log = recording.log
        self.notes = recording.notes_for_why
        plain = recording.graph
        self.graph = Graph("tensorflow", [], dict(plain.tensors), plain.inputs, plain.outputs)
        self.work: list[Payload | Custom | None] = []
        self.at: list[int] = []  # node -> how many operations had run
        self._interleave(plain)
        self._give_variables_their_shapes()
        self.tape: UserTape | None = None
        self.y: int | None = None
        self._watched: set[int] | None = None

    def _interleave(self, plain: Graph) -> None:
        extra: list[tuple[int, int, Any]] = [(c.at, 0, c) for c in self.notes.customs]
        extra += [(leak.after, 1, leak) for leak in self.log.leaks]
        extra += [(host.at, 2, host) for host in self.notes.hosts]
        extra.sort(key=lambda item: item[:2])
        for index, node in enumerate(plain.nodes):
            while extra and extra[0][0] <= index:
                self._insert(extra.pop(0)[2], index)
            payload = self.notes.payloads.get(index)
            self._append(replace(node, id=len(self.graph.nodes)), payload, index)
        for _, _, item in extra:
            self._insert(item, len(plain.nodes))
        for node in self.graph.nodes:
            for output in node.outputs:
                known = self.graph.tensors[output]
                self.graph.tensors[output] = replace(known, node=node.id)

    def _insert(self, item: Any, at: int) -> None:
        where = place(*item.spot) if item.spot else None
        number = len(self.graph.nodes)
        if isinstance(item, Custom):
            made = tuple(compat.number(t) for t in item.outputs if compat.number(t) in self.graph.tensors)
            given = tuple(self.log.number(compat.number(t)) for t in item.inputs)
            if made and all(k in self.graph.tensors for k in given):
                self.graph.nodes[:] = [  # what is inside is not followed: the rule stands for it
                    replace(node, gradient="cut") if not set(made).isdisjoint(node.outputs) else node for node in self.graph.nodes
                ]
                self._append(Node(number, item.name, given, made, where, gradient="custom"), item, at)
        elif isinstance(item, Host):
            known = self.graph.tensors
            given = tuple(k for t in item.inputs if (k := self.log.number(compat.number(t))) in known)
            made = tuple(k for t in item.outputs if (k := compat.number(t)) in known)
            self._append(Node(number, HOST, given, made, where, gradient="cut"), None, at)
        elif item.number in self.graph.tensors:
            self._append(Node(number, item.how, (item.number,), (), where, gradient="cut"), None, at)

    def _append(self, node: Node, work: Payload | Custom | None, at: int) -> None:
        self.graph.nodes.append(node)
        self.work.append(work)
        self.at.append(at)

    def _give_variables_their_shapes(self) -> None:
        """A handle has no shape; what is read through it has."""
        for node in self.graph.nodes:
            if node.op == "ReadVariableOp":
                read = self.graph.tensors[node.outputs[0]]
                handle = self.graph.tensors[node.inputs[0]]
                self.graph.tensors[handle.id] = replace(handle, shape=read.shape, dtype=read.dtype)
        for value in self.recording._values.values():
            if value.key.variable is not None:
                number = self.recording.number(value)
                if number in self.graph.tensors:
                    found = self.graph.tensors[number]
                    self.graph.tensors[number] = replace(found, shape=tuple(value.shape), dtype=value.dtype.name)

    # ---------------------------------------------------------------- the user's tape

    @property
    def events(self) -> list[Event]:
        return []

    def look_from(self, y: int) -> None:
        """Choose the tape that is meant: the last one that was open when y was made, or else before."""
        self.y = y
        node = self.graph.producer(y)
        made = self.at[node.id] if node is not None else len(self.log.operations)
        earlier = [t for t in self.notes.tapes if t.start <= made]
        around = [t for t in earlier if t.covers(made)]
        self.tape = (around or earlier or [None])[-1]  # type: ignore[list-item]
        self._watched = None

    @property
    def watched(self) -> set[int]:
        """Tensors that the user's tape follows."""
        if self._watched is None:
            self._watched = set()
            tape = self.tape
            if tape is not None:
                for node in self.graph.nodes:
                    self._watch(tape, node)
                self._watched.update(number for _, number, _ in tape.watched)
        return self._watched

    def _watch(self, tape: UserTape, node: Node) -> None:
        assert self._watched is not None
        at = self.at[node.id]
        if not tape.covers(at):
            return
        self._watched.update(number for when, number, _ in tape.watched if when <= at)
        if (node.op in compat.READS_VARIABLE or node.op == HOST) and tape.watches_variables:
            self._watched.update(k for k in node.inputs if self._is_variable(k) and self._trainable(k))
        if not self._watched.isdisjoint(node.inputs) and node.gradient in ("yes", "custom"):
            self._watched.update(node.outputs)

    def _is_variable(self, number: int) -> bool:
        return self.log.tensors[number][1] == compat.RESOURCE

    def _trainable(self, number: int) -> bool:
        for value in self.recording._values.values():
            if value.key.variable is not None and number in (value.key.number, self.recording.number(value)):
                return bool(value.key.variable.trainable)
        return True

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
        if self.tape is None:
            return -1
        when = [w for w, number, _ in self.tape.watched if number == tensor]
        if when:
            return next((n.id - 1 for n in self.graph.nodes if self.at[n.id] >= when[0]), len(self.graph.nodes))
        return -1 if tensor in self.watched else None

    def passes(self, node: Node, output: int) -> bool:
        if node.gradient not in ("yes", "custom") or self.off(node):
            return False
        return self.log.tensors[output][1] in compat.CARRIES_GRADIENT or self.log.tensors[output][1] == compat.RESOURCE

    def off(self, node: Node) -> str:
        return "tape_closed" if self.tape is not None and not self.tape.covers(self.at[node.id]) else ""

    def unfollowed(self, tensor: int) -> tuple[str, Where | None, str] | None:
        """Why the user's tape does not follow a tensor."""
        tape = self.tape
        if tape is None:
            return None
        where = place(*tape.where) if tape.where else None
        late = [(when, spot) for when, number, spot in tape.watched if number == tensor]
        if late:
            return "late_requires_grad", place(*late[0][1]) if late[0][1] else None, "it had been used before it was watched"
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
        return "unwatched", where, "no tape.watch() names it, and it is no variable"

    def _was_variable(self, tensor: int) -> Where | None:
        """Where a name that meant a variable came to mean this tensor."""
        for name in self.recording.names:
            bound = self.recording.names.all(name)
            for earlier, later in pairwise(bound):
                if earlier.object.key.variable is not None and later.object.key.number == tensor:
                    return later.where
        return None

    def via(self, node: Node) -> str:
        work = self.work[node.id]
        if not isinstance(work, Payload):
            return ""
        for code in reversed(work.called):
            name = code.co_name
            if name not in WRAPPERS and not name.startswith("_"):
                return name.removesuffix("_v2")
        return ""

    # ---------------------------------------------------------------- numbers

    def value(self, tensor: int) -> Numbers | None:
        node = self.graph.producer(tensor)
        work = None if node is None else self.work[node.id]
        if node is not None and isinstance(work, Payload):
            return _numbers(work.outputs[node.outputs.index(tensor) - len(node.outputs)])
        return None

    def saved(self, node: Node) -> dict[str, Numbers]:
        work = self.work[node.id]
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
        """Operation by operation, from the last to the first; a rule written by hand stands for what is inside it."""
        found: dict[int, Numbers | None] = {y: np.asarray(seed, dtype=np.float64)}
        taken: set[int] = set()
        for node in reversed(self.graph.nodes):
            if node.gradient not in ("yes", "custom") or all(found.get(k) is None for k in node.outputs):
                continue
            if taken.issuperset(node.outputs) and node.outputs:
                continue
            for number, pulled in zip(node.inputs, self.local(node, [found.get(k) for k in node.outputs]), strict=True):
                if pulled is not None:
                    known = found.get(number)
                    found[number] = pulled if known is None else known + pulled
            if node.gradient == "custom":
                taken.update(node.outputs)
        return found

    def local(self, node: Node, cotangents: Sequence[Numbers | None]) -> list[Numbers | None]:
        work = self.work[node.id]
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
        work = self.work[node.id]
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

        rule = next(_codes(work.backward, 0, set()), None) if isinstance(work, Custom) else None
        inputs = tuple(n for t in kept if (n := _numbers(t)) is not None)
        if len(inputs) != len(kept) or (
            isinstance(work, Payload) and any(compat.kind(t) == compat.RESOURCE for t in work.inputs)
        ):
            return None
        name = node.op if rule is not None else ""
        precision = 2.3e-16 if all(t.dtype == tf.float64 for t in kept) else 1.2e-7
        return Again(
            inputs, tuple(node.inputs[k] for k in floats), call, name, None if rule is None else _last_return(rule), precision
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
            payload = self.notes.payloads.get(index)
            inside = any(k in values for k in operation.inputs) and operation.op != "ReadVariableOp"
            if payload is None or not inside:
                continue
            inputs = [values.get(k, t) for k, t in zip(operation.inputs, payload.inputs, strict=True)]
            made = compat.run_again(operation.op, inputs, payload.attributes, len(payload.outputs))
            values.update(zip(operation.outputs[-len(payload.outputs) :], made, strict=True))
        return [values.get(k, t) for k, t in zip(wanted, custom.outputs, strict=True)]

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
        bound = [b for name in self.recording.names for b in self.recording.names.all(name) if b.code is code]
        found = [b for b in bound if b.object.key.number in after]
        return min(found, key=lambda b: b.where.line).where if found else node.where

    def refused(self, y: int, x: int, path: Sequence[Node]) -> list[tuple[str, Node, str]]:
        return []

    def consumed(self, y: int) -> tuple[Where | None, str] | None:
        """A tape that answers once has answered for something else."""
        tape = self.tape
        if tape is None or tape.persistent or not tape.asked or any(y in targets for _, targets, _ in tape.asked):
            return None
        _, _, spot = tape.asked[0]
        return (place(*spot) if spot else None), "this call uses the tape up, and it is not persistent"


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


def _codes(thing: Any, depth: int, seen: set[int]) -> Iterator[CodeType]:
    """Code of the user's behind wrappers and closures."""
    if depth > 6 or id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, FunctionType):
        if user_files[thing.__code__.co_filename]:
            yield thing.__code__
        for cell in thing.__closure__ or ():
            try:
                yield from _codes(cell.cell_contents, depth + 1, seen)
            except ValueError:
                continue
    elif isinstance(thing, functools.partial):
        yield from _codes(thing.func, depth + 1, seen)
    elif isinstance(thing, (tuple, list)):
        for item in thing:
            yield from _codes(item, depth + 1, seen)
    else:
        inner = getattr(thing, "__wrapped__", None)
        if inner is not None:
            yield from _codes(inner, depth + 1, seen)


def _last_return(code: CodeType) -> Where | None:
    lines = [i.positions.lineno for i in dis.get_instructions(code) if i.opname.startswith("RETURN") and i.positions]
    return Where(code.co_filename, lines[-1], function=function_name(code)) if lines and lines[-1] else None
