"""Listening to one real run: a persistent tape over everything, and a callback after every operation.

The callback comes after the operation ran. A tensor that it meets as an input for the first time was not watched in
time, and the tape has not kept the operation: it is put there by hand, so that the answer is never a silent zero.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.log import Leak, Operation
from wrt._backends.tensorflow.names import layers_named
from wrt._backends.tensorflow.recording import TensorFlowRecording
from wrt._backends.tensorflow.writes import UPDATES, Update
from wrt._core.bindings import Binding
from wrt._core.frame_names import visible_tensors
from wrt._core.protocol import Backend
from wrt._core.watch import Watcher
from wrt._core.where import spot, user_frame

CALLS_THE_USER = "wrt._backends.tensorflow.backend"


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

    @contextmanager
    def listening(self) -> Iterator[TensorFlowRecording]:
        """Record what runs inside, in this thread."""
        recording = self.recording
        with ExitStack() as stack:
            stack.enter_context(compat.functions_run_eagerly())
            stack.enter_context(compat.reads_noticed(self._read))
            stack.enter_context(compat.arrays_noticed(self._from_numpy))
            stack.enter_context(layers_named(self))
            stack.callback(compat.close_tape, recording.open())
            compat.add_callback(self._ran)
            stack.callback(compat.remove_callback, self._ran)
            self._watch_what_is_at_hand(user_frame(sys._getframe(1)))
            stack.enter_context(Watcher(recording.is_tensor, self._bound))
            OPEN.recorders.append(self)
            stack.callback(OPEN.recorders.remove, self)
            yield recording

    # ---------------------------------------------------------------- tensors

    def meet(self, tensor: Any) -> None:
        """Watch a tensor that came from outside, before it is used where possible."""
        log = self.recording.log
        number = compat.number(tensor)
        if number not in log.tensors:
            kind = compat.kind(tensor)
            log.tensors[number] = (compat.shape(tensor), kind)
            log.met(number)
            if kind in compat.CARRIES_GRADIENT or kind == compat.RESOURCE:
                compat.watch(self.recording.tape, tensor)

    def _watch_what_is_at_hand(self, frame: FrameType | None) -> None:
        if frame is not None:
            for name, tensor in visible_tensors(frame, self.recording.is_tensor).items():
                taped = self.recording.taped(tensor)
                self.meet(taped)
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

    def _read(self, tensor: Any) -> None:
        log = self.recording.log
        if not compat.is_quiet() and compat.kind(tensor) in compat.FLOATS and compat.number(tensor) in log.tensors:
            log.leaks.append(Leak(compat.number(tensor), len(log.operations), spot(sys._getframe(1))))

    def _from_numpy(self, tensor: Any) -> None:
        if not compat.is_quiet() and compat.kind(tensor) in compat.FLOATS:
            self.recording.log.from_numpy[compat.number(tensor)] = spot(sys._getframe(1))

    # ---------------------------------------------------------------- operations

    def _ran(
        self, op: str | bytes, inputs: Any, attributes: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        if graph is not None or compat.is_quiet() or not all(isinstance(t, compat.EagerTensor) for t in inputs):
            return
        frame = sys._getframe(1)
        if _is_ours(frame):
            return
        if isinstance(op, bytes):  # where TensorFlow left its fast path
            op = op.decode()
        stopped = compat.tapes_are_stopped() and not compat.is_call(op)
        outputs = outputs or ()
        blind = self._meet_inputs(op, inputs, attributes, outputs, frame)
        log = self.recording.log
        entry = Operation(
            op,
            tuple(log.number(compat.number(t)) for t in inputs),
            self._written(op, inputs) + tuple(compat.number(t) for t in outputs),
            spot(frame),
            self.layers[-1] if self.layers else "",
            stopped,
        )
        for tensor in outputs:
            self._made(tensor)
        index = log.add(entry)
        if blind:
            log.blind.add(index)
        if op in UPDATES:
            update = Update(index, op, tuple(inputs), attributes, outputs[0], entry.spot)
            self.recording.updates[entry.outputs[0]] = update
        elif op in compat.READS_VARIABLE:
            self.recording.note_read(inputs[0], outputs[0] if op == "ReadVariableOp" else None)

    def _meet_inputs(self, op: str, inputs: Any, attributes: Any, outputs: Any, frame: FrameType) -> bool:
        """Watch what was not watched; True where its gradient through this operation is lost for good."""
        log = self.recording.log
        late = watched = False
        for tensor in inputs:
            kind = compat.kind(tensor)
            number = compat.number(tensor)
            known = number in log.tensors
            if not known:
                self.meet(tensor)
                fresh = number > log.start and kind in compat.FLOATS
                if fresh and not self._was_read(tensor, frame) and _is_from_numpy(frame):
                    log.from_numpy[number] = spot(frame)
            if kind in compat.CARRIES_GRADIENT or (kind == compat.RESOURCE and op in compat.READS_VARIABLE):
                late, watched = late or not known, watched or known
        if not late:
            return False
        if compat.is_call(op):
            return True  # what a compiled function keeps for its backward cannot be had afterwards
        if not watched and not compat.tapes_are_stopped():
            compat.record_by_hand(op, inputs, attributes, outputs)
        return False

    def _was_read(self, tensor: Any, frame: FrameType) -> bool:
        """A variable among the arguments of TensorFlow's fast path is read without a word; note the read here."""
        for variable in _variables(frame):
            handle = compat.handle(variable)
            if tuple(variable.shape) == compat.shape(tensor) and variable.dtype == tensor.dtype:
                self.recording.note_read(handle, tensor, in_time=compat.number(handle) in self.recording.log.tensors)
                self.meet(handle)
                numbers = (self.recording.log.number(compat.number(handle)),)
                read = Operation("ReadVariableOp", numbers, (compat.number(tensor),), spot(frame), "", False)
                self.recording.log.add(read)
                return True
        return False

    def _made(self, tensor: Any) -> None:
        kind = compat.kind(tensor)
        self.recording.log.tensors[compat.number(tensor)] = (compat.shape(tensor), kind)
        if kind in compat.CARRIES_GRADIENT:
            compat.watch(self.recording.tape, tensor)  # made from nothing watched: random numbers, zeros, casts

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


def _is_ours(frame: FrameType) -> bool:
    """Whether wrt itself asked for the operation, to answer a question inside the block."""
    inner: FrameType | None = frame
    while inner is not None:
        module = inner.f_globals.get("__name__", "")
        if not module.startswith("tensorflow."):
            return module.startswith("wrt.") and module != CALLS_THE_USER
        inner = inner.f_back
    return False


def _variables(frame: FrameType) -> list[Any]:
    """The variables that a function of TensorFlow was given."""
    code = frame.f_code
    given = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
    flat = [item for value in given for item in (value if isinstance(value, (list, tuple)) else (value,))]
    return [item for item in flat if isinstance(item, tf.Variable)]


def _is_from_numpy(frame: FrameType) -> bool:
    """Whether the function of TensorFlow that ran the operation was given a NumPy array."""
    inner: FrameType | None = frame
    while inner is not None and "tensorflow" in inner.f_code.co_filename:
        if any(isinstance(value, (np.ndarray, np.floating)) for value in inner.f_locals.values()):
            return True
        inner = inner.f_back
    return False
