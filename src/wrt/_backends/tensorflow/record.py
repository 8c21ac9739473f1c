"""Listening to one real run: a persistent tape over everything, and a callback after every operation.

The callback comes after the operation ran. A tensor that it meets as an input for the first time was not watched in
time, and the tape has not kept the operation: it is put there by hand, so that the answer is never a silent zero.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import CodeType, FrameType
from typing import Any

from wrt._backends.tensorflow import compat, events
from wrt._backends.tensorflow.frames import OURS, asked_at, how_read, is_from_numpy, is_given, variables_of
from wrt._backends.tensorflow.log import Leak, Operation
from wrt._backends.tensorflow.names import name_layers
from wrt._backends.tensorflow.patching import Patch
from wrt._backends.tensorflow.recording import TensorFlowRecording
from wrt._backends.tensorflow.tensors import is_tensor, taped_as
from wrt._backends.tensorflow.tracing import pause_inside_operations
from wrt._backends.tensorflow.writes import UPDATES, Update
from wrt._core.interrupts import held_back
from wrt._core.protocol import Backend
from wrt._core.where import Spot, others_run_user_code, spot, user_frame
from wrt._names.frame_names import visible_tensors
from wrt._names.watch import Watcher


def _close(stack: ExitStack) -> None:
    try:
        with held_back():
            stack.close()
    finally:
        stack.close()  # nothing is left to do, unless Ctrl-C came before it could be held back


class _Open(threading.local):
    """The recordings of this thread that are running, the outermost first."""

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []


OPEN = _Open()


class _Usual(dict[str | bytes, bool]):
    """Whether there is nothing special about an operation of this name; bytes are from outside TensorFlow's fast path."""

    def __missing__(self, op: str | bytes) -> bool:
        found = self[op] = isinstance(op, str) and op not in UPDATES and not compat.is_call(op)
        return found


is_usual = _Usual()


class Recorder:
    """Fills a recording while it is open."""

    def __init__(self, backend: Backend) -> None:
        self.recording = TensorFlowRecording(backend, compat.next_number())
        self.layers: list[str] = []
        self.tracer: Any = None  # the trace function that watches names, if nobody else's stands behind it

    @contextmanager
    def listen(self) -> Iterator[TensorFlowRecording]:
        """Record what runs inside, in this thread; names only where they are watched."""
        stack = ExitStack()
        try:
            with held_back():
                self._begin(stack, user_frame(sys._getframe(1)))
            yield self.recording
        finally:
            _close(stack)

    def _begin(self, stack: ExitStack, frame: FrameType | None) -> None:
        recording = self.recording
        stack.enter_context(compat.EAGERLY.on())
        stack.enter_context(compat.notice_reads(self._read))
        stack.enter_context(compat.notice_arrays(self._converted))
        stack.enter_context(compat.notice_custom_gradients(self._custom))
        for owner, name in ((threading.Thread, "start"), (ThreadPoolExecutor, "submit")):
            stack.enter_context(Patch(owner, name, self._thread))
        if others_run_user_code():
            recording.log.threads.append((0, None))
        stack.enter_context(name_layers(self))
        stack.enter_context(events.follow_events(recording.events, self._count, self._number))
        recording.tape = compat.open_tape()
        stack.callback(compat.close_tape, recording.tape)
        compat.add_callback(self._ran)
        stack.callback(compat.remove_callback, self._ran)
        self._watch_what_is_at_hand(frame)
        OPEN.recorders.append(self)
        stack.callback(OPEN.recorders.remove, self)

    @contextmanager
    def watch_names(self) -> Iterator[None]:
        """Learn what the user's variables mean: around his code and as little of ours as can be, for it takes time."""
        before = sys.gettrace()
        stack = ExitStack()
        try:
            with held_back():
                stack.enter_context(Watcher(is_tensor, _nobody, self._note))
                if before is None:
                    self.tracer = stack.enter_context(pause_inside_operations())
            yield
        finally:
            _close(stack)

    def _count(self) -> int:
        return self.recording.log.count

    def _number(self, tensor: Any) -> int:
        return compat.number(taped_as(tensor))

    # ---------------------------------------------------------------- tensors

    def meet(self, tensor: Any, *, watch: bool = False) -> None:
        """Note a tensor that came from outside.

        A tape computes the gradient of everything it watches, whoever asks. A constant that enters beside something
        watched (a weight matrix) is left unwatched: the operation is on the tape anyway, and watching it when somebody
        asks is early enough.
        """
        recording = self.recording
        number = compat.number(tensor)
        if not recording.met(number):
            recording.log.references[number] = tensor
            kind = compat.kind(tensor)
            recording.log.tensors[number] = (compat.shape(tensor), kind)
            recording.log.meet(number)
            if kind != compat.RESOURCE:
                recording.taped[number] = False
            if kind in compat.CARRIES_GRADIENT or kind == compat.RESOURCE:
                recording.leaves[number] = weakref.ref(tensor)
        if watch and number in recording.leaves:
            recording.watch(number, tensor)

    def _watch_what_is_at_hand(self, frame: FrameType | None) -> None:
        if frame is not None:
            for name, tensor in visible_tensors(frame, is_tensor).items():
                taped = taped_as(tensor)
                self.meet(taped, watch=True)
                self.recording.call(name, compat.number(taped))

    def _note(self, name: str, tensor: Any, code: CodeType, offset: int) -> weakref.ref[Any]:
        """A variable of the user's code means a tensor now."""
        if type(tensor) is not compat.EagerTensor:
            self.meet(taped_as(tensor))
        elif compat.number(tensor) not in self.recording.taped:
            self.meet(tensor)
        self.recording.noted.append((name, tensor, code, offset))
        return weakref.ref(tensor)

    def name(self, name: str, tensor: Any, frame: FrameType | None) -> None:
        """Bind a name that no variable has: a layer, a tap."""
        frame = user_frame(frame)
        if frame is not None and is_tensor(tensor):
            self._note(name, tensor, frame.f_code, frame.f_lasti)

    def _thread(self, original: Any) -> Any:
        @wraps(original)
        def begin(*args: Any, **kwargs: Any) -> Any:
            self.recording.log.threads.append((self._count(), spot(sys._getframe(1))))
            return original(*args, **kwargs)

        return begin

    def _custom(self, op: Any, outputs: Any, inputs: Any, backward: Any) -> None:
        """A gradient of the user's own is about to be recorded: only if one of its inputs is watched."""
        if not compat.is_quiet():
            for tensor in inputs:
                if isinstance(tensor, compat.EagerTensor):
                    self.meet(tensor, watch=True)
            if callable(backward):
                customs = self.recording.events.customs
                customs.append(events.custom(op, self._count(), inputs, outputs, backward))

    def _read(self, tensor: Any) -> None:
        log, number = self.recording.log, compat.number(tensor)
        if not compat.is_quiet() and number in self.recording.taped:
            here, how = spot(sys._getframe(1)), how_read(sys._getframe(1))
            log.leaks.append(Leak(number, log.count, here, how))

    def _converted(self, tensor: Any, array: bool) -> None:
        self.recording.log.converted.add(compat.number(tensor))
        if array and not compat.is_quiet() and compat.kind(tensor) in compat.FLOATS:
            self.recording.log.from_numpy[compat.number(tensor)] = spot(sys._getframe(1))

    # ---------------------------------------------------------------- operations

    def _ran(self, op: Any, inputs: Any, attributes: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> None:
        """The hot path: called after every operation, of which it notes the tensors and the place."""
        if graph is not None or compat.is_quiet():
            return
        frame = sys._getframe(1)
        here, via = asked_at(frame)
        if here is OURS:
            return
        taped = self.recording.taped
        watched, usual = False, is_usual[op]
        for tensor in inputs:
            state = taped.get(compat.number(tensor))
            if state:
                watched = True
            elif state is None:
                usual = False
        layer = self.layers[-1] if self.layers else ""
        if not (usual and watched) or compat.tapes_are_stopped():
            self._ran_unusually(op, inputs, attributes, outputs, frame, here, via, layer, watched)
            return
        log, given = self.recording.log, tuple(map(compat.number, inputs))
        made = tuple([log.note(tensor, op) for tensor in outputs or ()])
        for number in made:
            taped[number] = log.tensors[number][1] in compat.CARRIES_GRADIENT
        log.add(Operation(op, given, made, here, layer, False, attributes, via))

    def _ran_unusually(
        self, op: str | bytes, inputs: Any, attributes: Any, outputs: Any, frame: FrameType, here: Spot | None, via: str,
        layer: str, watched: bool,
    ) -> None:  # fmt: skip
        """An operation that meets tensors for the first time, reads or writes a variable, or updates a tensor."""
        recording = self.recording
        log = recording.log
        stopped = compat.tapes_are_stopped()
        op = op.decode() if isinstance(op, bytes) else op  # where TensorFlow left its fast path
        late = [t for t in inputs if not recording.met(compat.number(t)) or compat.number(t) in recording.leaves]
        blind = bool(late) and self._met_late(op, late, watched, inputs, attributes, outputs, frame, stopped)
        numbers = tuple(log.number(compat.number(tensor)) for tensor in inputs)
        for number, tensor in zip(numbers, inputs):
            if number not in log.producer or log.tensors[number][1] == compat.RESOURCE:
                log.references[number] = tensor
        written = self._written(op, inputs)
        made = [self._made(tensor, stopped, op) for tensor in outputs or ()]
        index = log.add(Operation(op, numbers, (*written, *made), here, layer, stopped, attributes, via))
        if blind:
            log.blind.add(index)
        if op in UPDATES:
            recording.updates[made[0]] = Update(index, op, tuple(inputs), attributes, outputs[0], here)
        elif op in compat.READS_VARIABLE:
            recording.note_read(inputs[0], outputs[0] if op == "ReadVariableOp" else None)

    def _made(self, tensor: Any, stopped: bool, op: str) -> int:
        recording = self.recording
        number = recording.log.note(tensor, op)
        kind = compat.kind(tensor)
        carries = kind in compat.CARRIES_GRADIENT
        if kind != compat.RESOURCE:
            recording.taped[number] = carries and not stopped
        if carries and stopped:
            recording.leaves[number] = weakref.ref(tensor)
        elif carries:
            compat.watch(recording.tape, tensor)  # it may be made from nothing watched: random numbers, zeros, casts
        return number

    def _met_late(
        self, op: str, late: list[Any], watched: bool, inputs: Any, attributes: Any, outputs: Any, frame: FrameType,
        stopped: bool,
    ) -> bool:  # fmt: skip
        """Note what is met for the first time; True where its gradient through this operation is lost for good."""
        log = self.recording.log
        variables: list[Any] | None = None
        carries = False
        for tensor in late:
            kind, number = compat.kind(tensor), compat.number(tensor)
            fresh = number > log.start and kind in compat.FLOATS and not self.recording.met(number)
            self.meet(tensor, watch=not watched)
            if fresh:
                variables = variables_of(frame) if variables is None else variables
                if not self._was_read(tensor, variables, frame):
                    if is_from_numpy(frame):
                        log.from_numpy[number] = spot(frame)
                    elif number not in log.converted and is_given(tensor, frame):
                        log.foreign[number] = spot(frame)
            carries |= kind in compat.CARRIES_GRADIENT
            carries |= kind == compat.RESOURCE and op in compat.READS_VARIABLE
        if watched or not carries:
            return False
        if compat.is_call(op):
            return True  # what a compiled function keeps for its backward cannot be had afterwards
        if not stopped:
            compat.record_by_hand(op, inputs, attributes, outputs)
        return False

    def _was_read(self, tensor: Any, variables: list[Any], frame: FrameType) -> bool:
        """A variable among the arguments of TensorFlow's fast path is read without a word; note the read here."""
        recording = self.recording
        for variable in variables:
            if tuple(variable.shape) == compat.shape(tensor) and variable.dtype == tensor.dtype:
                variables.remove(variable)  # arguments and inputs stand in the same order
                handle = compat.handle(variable)
                recording.note_read(handle, tensor, in_time=recording.met(compat.number(handle)))
                self.meet(handle, watch=True)
                numbers = (recording.log.number(compat.number(handle)),)
                layer = self.layers[-1] if self.layers else ""
                read = Operation("ReadVariableOp", numbers, (compat.number(tensor),), spot(frame), layer, False)
                recording.log.add(read)
                recording.log.references[compat.number(tensor)] = tensor
                return True
        return False

    def _written(self, op: str, inputs: Any) -> tuple[int, ...]:
        """New numbers of the variables that an operation writes to, or may write to."""
        if op in compat.LOOKS_AT_VARIABLE:
            return ()
        handles = [t for t in inputs if compat.kind(t) == compat.RESOURCE]
        if compat.is_call(op):
            for handle in handles:
                self.recording.note_read(handle, None)
            return tuple(self.recording.log.rewrite(compat.number(handle)) for handle in handles)
        return tuple(self.recording.note_assignment(handle) for handle in handles)


def _nobody(binding: Any) -> None:
    """Names are noted, not reported."""
