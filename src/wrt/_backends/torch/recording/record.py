"""Recording a run of torch code: everything that takes notes, put in place around it and taken away again.

And which recordings there are: the running one of a thread, and those whose tensors the user still holds.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from wrt._backends.torch import compat
from wrt._backends.torch.recording import patching
from wrt._backends.torch.recording.recording import TorchRecording, is_tensor
from wrt._core.interrupts import held_back
from wrt._core.value import Value
from wrt._core.where import others_run_user_code, user_frame
from wrt._names.observer import Note, Reference
from wrt._names.watch import Watcher

_COUNT = count(1)

RECORDINGS: weakref.WeakValueDictionary[int, TorchRecording] = weakref.WeakValueDictionary()
"""By the number of their start, the earliest first."""


class recording:  # by hand: a generator and a stack of contexts would take as long as ten recorded operations
    """Record what the current thread does with torch tensors."""

    __slots__ = ("_keep_before", "_outer", "_record", "_started", "_watcher")
    # recordings of one thread that overlap note in one place: the last to end stops it, in whatever order they end

    def __init__(self, backend: Any, *, values: bool = False) -> None:
        self._started = False
        record = TorchRecording(backend)
        self._record: TorchRecording | None = record
        record.started = next(_COUNT)
        record.thread = threading.get_ident()
        outer = innermost()
        self._outer = outer
        if outer is not None:  # one recorder a thread: an inner recording has names of its own and shares the rest
            record.recorder, record.paths, record.events = outer.recorder, outer.paths, outer.events
        recorder = record.recorder
        self._keep_before = recorder.keep
        if values:
            recorder.keep = record.kept if self._keep_before is None else self._keep_before
        record.kept = {} if recorder.keep is None else recorder.keep
        self._watcher = Watcher(is_tensor, record.bound_names.add, _name_sink(record))

    def __enter__(self) -> TorchRecording:
        record = self._record
        assert record is not None
        begun = False
        try:
            with held_back():
                RECORDINGS[record.started] = record
                record.recorder.users += 1
                self._started = True
                if self._outer is None:
                    self._start(record)
                watched_before = sys.gettrace()
                self._watcher.__enter__()
                begun = True
                if self._outer is None:
                    record.recorder.tracer = sys.gettrace() if watched_before is None else None
        except BaseException:
            with held_back():
                if begun:
                    self._watcher.__exit__(None, None, None)
                self._stop(record)
            raise
        record.running = True
        return record

    def __exit__(self, *raised: object) -> None:
        with held_back():
            self._end(raised, sys._getframe(1))

    def __del__(self) -> None:
        if self._started and self._record is not None:  # Ctrl-C came before the first line of __exit__
            self.__exit__(None, None, None)

    def _end(self, raised: tuple[object, ...], frame: FrameType) -> None:
        record, self._record = self._record, None  # whoever holds this context must not hold the recording
        assert record is not None
        record.running = False
        try:
            last = record.recorder.users == 1
            record.recorder.keep = None if last else self._keep_before
            record.name_what_was_there(user_frame(frame))
            if last:
                record.recorder.release()
            keep_while_used(record)
            there = [(entry, tensor) for entry in record.bound_names.objects() if (tensor := entry()) is not None]
            record.versions = {entry: tensor._version for entry, tensor in there if not tensor.is_inference()}
        finally:
            try:
                self._watcher.__exit__(*raised)
            finally:
                self._stop(record)

    def _start(self, record: TorchRecording) -> None:
        """Put everything in place that notes what happens."""
        patching.begin(record)
        record.recorder.__enter__()
        if others_run_user_code():
            there = compat.tensors_at_hand(user_frame(sys._getframe(2)))
            record.recorder.look_away("another thread runs", None, there)

    def _stop(self, record: TorchRecording) -> None:
        users = record.recorder.users = record.recorder.users - self._started
        self._started = False
        if not users:
            try:
                compat.remove_function_mode(record.recorder)
            finally:
                patching.end(record)


def _name_sink(record: TorchRecording) -> Note:
    """What the watcher calls for every name: bare notes, and an entry in the tensor's place, which keeps none alive."""
    note, recorder = record.bound_names.note, record.recorder
    entries = recorder.entries

    def bound(name: str, tensor: Any, code: CodeType, offset: int) -> Reference:
        entry = entries.get(id(tensor))
        if entry is None or entry() is not tensor or recorder.written:
            entry = recorder.entry_outside(tensor)
        note((name, entry, code, offset))
        return entry

    return bound


def _as_values(record: TorchRecording, tree: Any) -> Any:
    """The user's container with a Value in the place of every tensor."""
    value = lambda leaf: record.of_entry(record.recorder.entry(leaf)) if isinstance(leaf, Tensor) else leaf
    return compat.tree_map(value, tree)


def trace(
    backend: Any, f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], *, values: bool = False
) -> TorchRecording:
    """Run f once, for real, and remember the run."""
    model = f if isinstance(f, torch.nn.Module) else getattr(f, "__self__", None)
    with recording(backend, values=values) as record:
        if isinstance(model, torch.nn.Module):
            record.paths.learn(model)
        output = f(*args, **kwargs)
    record.inputs = [_as_values(record, arg) for arg in args]
    record.keywords = {key: _as_values(record, arg) for key, arg in kwargs.items()}
    record.output = _as_values(record, output)
    record.held = (args, kwargs, output)  # inputs and outputs stay alive as long as the recording
    return record


# ---------------------------------------------------------------- which recordings there are


def _alive() -> list[TorchRecording]:
    """Those that are still there, the latest first; other threads may begin and drop some meanwhile."""
    return [recording for one in reversed(RECORDINGS.valuerefs()) if (recording := one()) is not None]


def find(tensor: Tensor) -> Value | None:
    """The Value of a tensor in the latest recording that made it; of one that none did, in the latest that saw it."""
    seen = None
    for recording in _alive():
        entry = recording.known(tensor)
        if entry is not None and entry.operation is not None:
            return recording.of_entry(entry)
        seen = seen or (None if entry is None else (recording, entry))
    return None if seen is None else seen[0].of_entry(seen[1])


_KEPT: dict[int, tuple[TorchRecording, int]] = {}


def keep_while_used(record: TorchRecording) -> None:
    """`with wrt.record():` without a name: the recording lives as long as a tensor that it saw made and named."""
    key = id(record)

    def gone(_: object, kept: dict[int, tuple[TorchRecording, int]] = _KEPT) -> None:  # globals die before tensors do
        held, left = kept.pop(key)
        if left > 1:
            kept[key] = (held, left - 1)

    made = [entry for entry in record.bound_names.objects() if entry.operation is not None]
    watched = [tensor for entry in made if (tensor := entry()) is not None]
    record.alive = [weakref.ref(tensor, gone) for tensor in watched]
    if watched:
        _KEPT[key] = (record, len(watched))


def tap(name: str, tensor: Tensor, frame: FrameType | None) -> None:
    """Name a tensor in every recording of this thread that is running."""
    for recording in _alive():
        if recording.running and recording.thread == threading.get_ident():
            with compat.without_function_modes():
                recording.name(name, tensor, frame)


def innermost() -> TorchRecording | None:
    """The recording that this thread is in, the latest where one is inside another."""
    return next((r for r in _alive() if r.running and r.thread == threading.get_ident()), None)
