"""Listening to one real run: a persistent tape over everything, and a callback after every operation.

The callback comes after the operation ran. A tensor that it meets as an input for the first time was not watched in
time, and the tape has not kept the operation: it is put there by hand, so that the answer is never a silent zero.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FrameType
from typing import Any

from wrt._backends.tensorflow import compat, events
from wrt._backends.tensorflow.frames import OURS, asked_at, how_read, is_from_numpy, variables_of
from wrt._backends.tensorflow.log import Leak, Operation
from wrt._backends.tensorflow.names import layers_named
from wrt._backends.tensorflow.recording import TensorFlowRecording
from wrt._backends.tensorflow.writes import UPDATES, Update
from wrt._core.frame_names import visible_tensors
from wrt._core.protocol import Backend
from wrt._core.watch import Watcher
from wrt._core.where import Spot, spot, user_frame


class _Open(threading.local):
    """The recordings of this thread that are running, the outermost first."""

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []


OPEN = _Open()


class Recorder:
    """Fills a recording while it is open."""

    def __init__(self, backend: Backend) -> None:
        self.recording = TensorFlowRecording(backend, compat.open_tape, compat.next_number())
        self.layers: list[str] = []
        self.tracer: Any = None  # the trace function that watches names, if nobody else's stands behind it

    @contextmanager
    def listening(self) -> Iterator[TensorFlowRecording]:
        """Record what runs inside, in this thread."""
        recording = self.recording
        with ExitStack() as stack:
            stack.enter_context(compat.EAGERLY.held())
            stack.enter_context(compat.reads_noticed(self._read))
            stack.enter_context(compat.arrays_noticed(self._from_numpy))
            stack.enter_context(compat.custom_gradients_noticed(self._custom))
            stack.enter_context(layers_named(self))
            stack.enter_context(events.followed(recording.notes_for_why, self._count, self._number))
            stack.callback(compat.close_tape, recording.open())
            compat.add_callback(self._ran)
            stack.callback(compat.remove_callback, self._ran)
            self._watch_what_is_at_hand(user_frame(sys._getframe(1)))
            watched_before = sys.gettrace()
            stack.enter_context(Watcher(recording.is_tensor, _nobody, self._note))
            self.tracer = sys.gettrace() if watched_before is None else None
            OPEN.recorders.append(self)
            stack.callback(OPEN.recorders.remove, self)
            yield recording

    def _count(self) -> int:
        return len(self.recording.log.operations)

    def _number(self, tensor: Any) -> int:
        return compat.number(self.recording.taped(tensor))

    # ---------------------------------------------------------------- tensors

    def meet(self, tensor: Any, *, watch: bool = False) -> None:
        """Note a tensor that came from outside.

        A tape computes the gradient of everything it watches, whoever asks. A constant that enters beside something
        watched (a weight matrix) is left unwatched: the operation is on the tape anyway, and watching it when somebody
        asks is early enough.
        """
        recording = self.recording
        number = compat.number(tensor)
        if number not in recording.log.tensors:
            recording.work.keep(number, tensor)
            kind = compat.kind(tensor)
            recording.log.tensors[number] = (compat.shape(tensor), kind)
            recording.log.met(number)
            if kind in compat.CARRIES_GRADIENT or kind == compat.RESOURCE:
                recording.leaves[number] = weakref.ref(tensor)
        if watch and number in recording.leaves:
            recording.watch(number, tensor)

    def _watch_what_is_at_hand(self, frame: FrameType | None) -> None:
        if frame is not None:
            for name, tensor in visible_tensors(frame, self.recording.is_tensor).items():
                taped = self.recording.taped(tensor)
                self.meet(taped, watch=True)
                self.recording.called(name, compat.number(taped))

    def _note(self, name: str, tensor: Any, code: CodeType, offset: int) -> weakref.ref[Any]:
        """A variable of the user's code means a tensor now."""
        if type(tensor) is not compat.EagerTensor:
            self.meet(self.recording.taped(tensor))
        elif tensor._id not in self.recording.log.tensors:
            self.meet(tensor)
        self.recording.noted.append((name, tensor, code, offset))
        return weakref.ref(tensor)

    def name(self, name: str, tensor: Any, frame: FrameType | None) -> None:
        """Bind a name that no variable has: a layer, a tap."""
        frame = user_frame(frame)
        if frame is not None and self.recording.is_tensor(tensor):
            self._note(name, tensor, frame.f_code, frame.f_lasti)

    def _custom(self, inputs: Any) -> None:
        """A gradient of the user's own is about to be recorded: only if one of its inputs is watched."""
        if not compat.is_quiet():
            for tensor in inputs:
                if isinstance(tensor, compat.EagerTensor):
                    self.meet(tensor, watch=True)

    def _read(self, tensor: Any) -> None:
        log = self.recording.log
        if not compat.is_quiet() and compat.kind(tensor) in compat.FLOATS and compat.number(tensor) in log.tensors:
            here, how = spot(sys._getframe(1)), how_read(sys._getframe(1))
            log.leaks.append(Leak(compat.number(tensor), len(log.operations), here, how))

    def _from_numpy(self, tensor: Any) -> None:
        if not compat.is_quiet() and compat.kind(tensor) in compat.FLOATS:
            self.recording.log.from_numpy[compat.number(tensor)] = spot(sys._getframe(1))

    # ---------------------------------------------------------------- operations

    def _ran(self, op: str | bytes, inputs: Any, attributes: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> None:
        """The hot path: called after every operation, of which it notes numbers, shapes and the place."""
        if graph is not None or compat.is_quiet():
            return
        frame = sys._getframe(1)
        here, via = asked_at(frame)
        if here is OURS:
            return
        if isinstance(op, bytes):  # where TensorFlow left its fast path
            op = op.decode()
        log, leaves = self.recording.log, self.recording.leaves
        tensors = log.tensors
        numbers = []
        watched = unusual = unwatched = False
        for tensor in inputs:
            number = tensor._id
            numbers.append(number)
            known = tensors.get(number)
            if known is None:
                unusual = True
            elif known[1] in compat.CARRIES_GRADIENT:
                if number in leaves:
                    unwatched = True
                else:
                    watched = True
            elif known[1] == compat.RESOURCE:
                unusual = True
        layer = self.layers[-1] if self.layers else ""
        if unusual or (unwatched and not watched) or op in UPDATES:
            self._ran_unusually(op, inputs, attributes, outputs, frame, here, via, layer, watched)
            return
        stopped = compat.tapes_are_stopped()
        made = [self._made(tensor, stopped, watched and not compat.is_call(op), op) for tensor in outputs or ()]
        log.add(Operation(op, tuple(numbers), tuple(made), here, layer, stopped, attributes, via))

    def _ran_unusually(
        self,
        op: str,
        inputs: Any,
        attributes: Any,
        outputs: Any,
        frame: FrameType,
        here: Spot | None,
        via: str,
        layer: str,
        watched: bool,
    ) -> None:
        """An operation that meets tensors for the first time, reads or writes a variable, or updates a tensor."""
        recording = self.recording
        log = recording.log
        stopped = compat.tapes_are_stopped()
        late = [t for t in inputs if t._id not in log.tensors or t._id in recording.leaves]
        blind = bool(late) and self._met_late(op, late, watched, inputs, attributes, outputs, frame, stopped)
        numbers = tuple(log.number(compat.number(tensor)) for tensor in inputs)
        for number, tensor in zip(numbers, inputs):
            if number not in log.producer or log.tensors[number][1] == compat.RESOURCE:
                recording.work.keep(number, tensor)
        written = self._written(op, inputs)
        made = [self._made(tensor, stopped, False, op) for tensor in outputs or ()]
        index = log.add(Operation(op, numbers, (*written, *made), here, layer, stopped, attributes, via))
        if blind:
            log.blind.add(index)
        if op in UPDATES:
            recording.updates[made[0]] = Update(index, op, tuple(inputs), attributes, outputs[0], here)
        elif op in compat.READS_VARIABLE:
            recording.note_read(inputs[0], outputs[0] if op == "ReadVariableOp" else None)

    def _made(self, tensor: Any, stopped: bool, on_tape: bool, op: str) -> int:
        kind = tensor._datatype_enum()
        number: int = tensor._id
        recording = self.recording
        recording.log.tensors[number] = (tensor._shape_tuple(), kind)
        recording.work.held[number] = weakref.ref(tensor) if compat.gives_the_same_again(op) else tensor
        if kind in compat.CARRIES_GRADIENT:
            if stopped:
                recording.leaves[number] = weakref.ref(tensor)
            elif not on_tape:
                compat.watch(recording.tape, tensor)  # made from nothing watched: random numbers, zeros, casts
        return number

    def _met_late(
        self,
        op: str,
        late: list[Any],
        watched: bool,
        inputs: Any,
        attributes: Any,
        outputs: Any,
        frame: FrameType,
        stopped: bool,
    ) -> bool:
        """Note what is met for the first time; True where its gradient through this operation is lost for good."""
        log = self.recording.log
        variables: list[Any] | None = None
        carries = False
        for tensor in late:
            kind, number = compat.kind(tensor), compat.number(tensor)
            fresh = number > log.start and kind in compat.FLOATS and number not in log.tensors
            self.meet(tensor, watch=not watched)
            if fresh:
                variables = variables_of(frame) if variables is None else variables
                if not self._was_read(tensor, variables, frame) and is_from_numpy(frame):
                    log.from_numpy[number] = spot(frame)
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
                recording.note_read(handle, tensor, in_time=compat.number(handle) in recording.log.tensors)
                self.meet(handle, watch=True)
                numbers = (recording.log.number(compat.number(handle)),)
                layer = self.layers[-1] if self.layers else ""
                read = Operation("ReadVariableOp", numbers, (compat.number(tensor),), spot(frame), layer, False)
                recording.log.add(read)
                recording.work.keep(compat.number(tensor), tensor)
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
            return tuple(self.recording.log.rewritten(compat.number(handle)) for handle in handles)
        return tuple(self.recording.assigned(handle) for handle in handles)


def _nobody(binding: Any) -> None:
    """Names are noted, not reported."""
