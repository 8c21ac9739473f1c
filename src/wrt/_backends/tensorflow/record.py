"""Listening to one real run: a persistent tape over everything, and a callback after every operation.

The callback comes after the operation ran. A tensor that it meets as an input for the first time was not watched in
time, and the tape has not kept the operation: it is put there by hand, so that the answer is never a silent zero.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf

from wrt._backends.tensorflow import compat, events
from wrt._backends.tensorflow.log import Leak, Operation
from wrt._backends.tensorflow.names import layers_named
from wrt._backends.tensorflow.recording import TensorFlowRecording
from wrt._backends.tensorflow.writes import UPDATES, Update
from wrt._core.bindings import Binding
from wrt._core.frame_names import visible_tensors
from wrt._core.protocol import Backend
from wrt._core.watch import Watcher
from wrt._core.where import Spot, is_user_code, spot, user_frame

WRT = str(Path(__file__).parents[2]) + os.sep
CALLS_THE_USER = tuple(f"{os.sep}{name}.py" for name in ("trace", "backend", "names", "standin", "events"))
"""Files of wrt whose frames stand between the user's code and its operations."""

OURS: Spot = (compile("", "<wrt>", "exec"), 0)


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
            stack.enter_context(Watcher(recording.is_tensor, self._bound))
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

    def _bound(self, binding: Binding) -> None:
        """A variable of the user's code means a tensor now."""
        self.meet(self.recording.taped(binding.object))
        binding.object = self.recording.lift(binding.object)
        self.recording.bind(binding)

    def name(self, name: str, tensor: Any, frame: FrameType | None) -> None:
        """Bind a name that no variable has: a layer, a tap."""
        recording = self.recording
        frame = user_frame(frame)
        if frame is not None and recording.is_tensor(tensor):
            self.meet(recording.taped(tensor))
            sequence = len(recording.log.operations)
            recording.bind(Binding(name, recording.lift(tensor), frame.f_code, frame.f_lasti, sequence))

    def _custom(self, inputs: Any) -> None:
        """A gradient of the user's own is about to be recorded: only if one of its inputs is watched."""
        if not compat.is_quiet():
            for tensor in inputs:
                if isinstance(tensor, compat.EagerTensor):
                    self.meet(tensor, watch=True)

    def _read(self, tensor: Any) -> None:
        log = self.recording.log
        if not compat.is_quiet() and compat.kind(tensor) in compat.FLOATS and compat.number(tensor) in log.tensors:
            here, how = spot(sys._getframe(1)), _how(sys._getframe(1))
            log.leaks.append(Leak(compat.number(tensor), len(log.operations), here, how))

    def _from_numpy(self, tensor: Any) -> None:
        if not compat.is_quiet() and compat.kind(tensor) in compat.FLOATS:
            self.recording.log.from_numpy[compat.number(tensor)] = spot(sys._getframe(1))

    # ---------------------------------------------------------------- operations

    def _ran(
        self, op: str | bytes, inputs: Any, attributes: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        """The hot path: called after every operation, of which it notes numbers, shapes and the place."""
        if graph is not None or compat.is_quiet():
            return
        frame = sys._getframe(1)
        here = _place(frame)
        if here is OURS:
            return
        if isinstance(op, bytes):  # where TensorFlow left its fast path
            op = op.decode()
        log, leaves = self.recording.log, self.recording.leaves
        tensors, current = log.tensors, log.current
        numbers = []
        late: list[Any] = []
        watched = handles = False
        for tensor in inputs:
            number = tensor._id
            known = tensors.get(number)
            if known is None or number in leaves:
                late.append(tensor)
            elif known[1] in compat.CARRIES_GRADIENT:
                watched = True
            if known is not None and known[1] == compat.RESOURCE:
                handles = True
            numbers.append(current.get(number, number) if current else number)
        stopped = compat.tapes_are_stopped()
        blind = bool(late) and self._met_late(op, late, watched, inputs, attributes, outputs, frame, stopped)
        written = self._written(op, inputs) if handles or late else ()
        made = [self._made(tensor, stopped) for tensor in outputs] if outputs else []
        layer = self.layers[-1] if self.layers else ""
        index = log.add(Operation(op, tuple(numbers), (*written, *made), here, layer, stopped))
        given = events.Payload(tuple(inputs), attributes, tuple(outputs or ()), events.library(frame))
        self.recording.notes_for_why.payloads[index] = given
        if blind:
            log.blind.add(index)
        if op in UPDATES:
            self.recording.updates[made[0]] = Update(index, op, tuple(inputs), attributes, outputs[0], here)
        elif op in compat.READS_VARIABLE:
            self.recording.note_read(inputs[0], outputs[0] if op == "ReadVariableOp" else None)

    def _made(self, tensor: Any, stopped: bool) -> int:
        kind = tensor._datatype_enum()
        number: int = tensor._id
        self.recording.log.tensors[number] = (tensor._shape_tuple(), kind)
        if kind in compat.CARRIES_GRADIENT:
            if stopped:
                self.recording.leaves[number] = weakref.ref(tensor)
            else:
                compat.watch(self.recording.tape, tensor)  # made from nothing watched: random numbers, zeros, casts
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
        variables = _variables(frame)
        carries = False
        for tensor in late:
            kind, number = compat.kind(tensor), compat.number(tensor)
            fresh = number > log.start and kind in compat.FLOATS and number not in log.tensors
            self.meet(tensor, watch=not watched)
            if fresh and not self._was_read(tensor, variables, frame) and _is_from_numpy(frame):
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


class _Files(dict[str, str]):
    """file name -> "user", "ours", "gate" or "" for the libraries between; asked for every frame of every operation."""

    def __missing__(self, name: str) -> str:
        if name.startswith(WRT):
            found = "gate" if name.endswith(CALLS_THE_USER) else "ours"
        else:
            found = "user" if is_user_code(name) else ""
        self[name] = found
        return found


_files = _Files()


def _place(frame: FrameType) -> Spot | None:
    """The user's place; OURS where wrt itself asked for the operation, to answer a question inside the block."""
    inner: FrameType | None = frame
    called = False  # by a frame of wrt that runs the user's program: whoever of wrt called that one does not matter
    while inner is not None:
        code = inner.f_code
        found = _files[code.co_filename]
        if found == "user":
            return code, inner.f_lasti
        if found == "ours" and not called:
            return OURS
        called = called or found == "gate"
        inner = inner.f_back
    return None


def _variables(frame: FrameType) -> list[Any]:
    """The variables that a function of TensorFlow was given."""
    code = frame.f_code
    given = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
    flat = [item for value in given for item in (value if isinstance(value, (list, tuple)) else (value,))]
    return [item for item in flat if isinstance(item, tf.Variable)]  # never Keras' own: those are read in Python


def _is_from_numpy(frame: FrameType) -> bool:
    """Whether the function of TensorFlow that ran the operation was given a NumPy array."""
    inner: FrameType | None = frame
    while inner is not None and inner.f_globals.get("__name__", "").startswith("tensorflow."):
        if any(isinstance(value, (np.ndarray, np.floating)) for value in inner.f_locals.values()):
            return True
        inner = inner.f_back
    return False


def _how(frame: FrameType | None) -> str:
    """Whether numbers are read as a Python number or as an array."""
    while frame is not None and not is_user_code(frame.f_code.co_filename):
        if frame.f_code.co_name in ("__float__", "__int__", "__bool__", "__index__", "__complex__"):
            return frame.f_code.co_name
        frame = frame.f_back
    return "numpy"
