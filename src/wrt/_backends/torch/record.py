"""Recording a run of torch code: everything that listens, put in place around it and taken away again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from wrt._backends.torch import checkpoints, functions, standing  # noqa: F401  (they register what stands in)
from wrt._backends.torch.recording import TorchRecording, is_tensor
from wrt._backends.torch.registry import RECORDINGS, keep_while_used, running
from wrt._core.interrupts import held_back
from wrt._core.where import user_frame
from wrt._names.observer import Note, Reference
from wrt._names.watch import Watcher

_COUNT = iter(range(1, 2**62))


class recording:  # by hand: a generator and a stack of contexts would take as long as ten recorded operations
    """Record what the current thread does with torch tensors."""

    __slots__ = ("_keep_before", "_listens", "_outer", "_record", "_watcher")

    def __init__(self, backend: Any, *, values: bool = False) -> None:
        self._listens = False
        record = TorchRecording(backend)
        self._record: TorchRecording | None = record
        record.started = next(_COUNT)
        record.thread = threading.get_ident()
        outer = running()
        self._outer = outer
        if outer is not None:  # one listener a thread: an inner recording has names of its own and shares the rest
            record.listener, record.paths, record.events = outer.listener, outer.paths, outer.events
        listener = record.listener
        self._keep_before = listener.keep
        if values:
            listener.keep = record.kept if self._keep_before is None else self._keep_before
        record.kept = {} if listener.keep is None else listener.keep
        self._watcher = Watcher(is_tensor, record.bound_names.add, _noting(record))

    def __enter__(self) -> TorchRecording:
        record = self._record
        assert record is not None
        begun = False
        try:
            with held_back():
                RECORDINGS[record.started] = record
                if self._outer is None:
                    self._listen(record)
                watched_before = sys.gettrace()
                self._watcher.__enter__()
                begun = True
                if self._outer is None:
                    record.listener.tracer = sys.gettrace() if watched_before is None else None
        except BaseException:
            with held_back():
                if begun:
                    self._watcher.__exit__(None, None, None)
                self._deafen(record)
            raise
        record.running = True
        return record

    def __exit__(self, *raised: object) -> None:
        with held_back():
            self._end(raised, sys._getframe(1))

    def __del__(self) -> None:
        if self._listens and self._record is not None:  # Ctrl-C came before the first line of __exit__
            self.__exit__(None, None, None)

    def _end(self, raised: tuple[object, ...], frame: FrameType) -> None:
        record, self._record = self._record, None  # whoever holds this context must not hold the recording
        assert record is not None
        record.running = False
        try:
            record.listener.keep = self._keep_before
            record.name_what_was_there(user_frame(frame))
            if self._outer is None:
                record.listener.let_go()
            keep_while_used(record)
        finally:
            try:
                self._watcher.__exit__(*raised)
            finally:
                self._deafen(record)

    def _listen(self, record: TorchRecording) -> None:
        """Put everything in place that notes what happens."""
        standing.begin(record)
        record.listener.__enter__()
        self._listens = True

    def _deafen(self, record: TorchRecording) -> None:
        if self._outer is not None:
            return
        try:
            if self._listens:
                self._listens = False
                _taken_down(record.listener)
        finally:
            standing.end(record)


def _taken_down(listener: Any) -> None:
    """Take it from among the function modes; a call that was interrupted may have left it anywhere, or nowhere."""
    modes: list[Any] = torch.overrides._get_current_function_mode_stack()
    if all(mode is not listener for mode in modes):
        return
    above = []
    while (top := modes.pop()) is not listener:
        torch._C._pop_torch_function_stack()
        above.append(top)
    torch._C._pop_torch_function_stack()
    for mode in reversed(above):
        torch._C._push_on_torch_function_stack(mode)


@standing.stands_in
def eager() -> standing.Undo:
    """Compiled code is one opaque node: run it eagerly."""
    if "torch._dynamo" not in sys.modules:
        return lambda: None
    stance: Any = torch.compiler.set_stance("force_eager")
    stance.__enter__()
    return lambda: stance.__exit__(None, None, None)


def _noting(record: TorchRecording) -> Note:
    """What the watcher calls for every name: bare notes, and an entry in the tensor's place, which keeps none alive."""
    note, listener = record.bound_names.note, record.listener
    entries = listener.entries

    def bound(name: str, tensor: Any, code: CodeType, offset: int) -> Reference:
        entry = entries.get(id(tensor))
        if entry is None or entry() is not tensor or listener.written:
            entry = listener.stand_in(tensor)
        note((name, entry, code, offset))
        return entry

    return bound


def as_values(record: TorchRecording, tree: Any) -> Any:
    """The user's container with a Value in the place of every tensor."""

    def value(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return record.of_entry(record.listener.entry(leaf))
        return leaf

    return pytree.tree_map(value, tree)


def trace(
    backend: Any, f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], *, values: bool = False
) -> TorchRecording:
    """Run f once, for real, and remember the run."""
    if isinstance(f, torch.nn.Module):
        module: torch.nn.Module | None = f
    else:
        module = getattr(f, "__self__", None) if isinstance(getattr(f, "__self__", None), torch.nn.Module) else None
    with recording(backend, values=values) as record:
        if module is not None:
            record.paths.learn(module)
        output = f(*args, **kwargs)
    record.inputs = [as_values(record, arg) for arg in args]
    record.keywords = {key: as_values(record, arg) for key, arg in kwargs.items()}
    record.output = as_values(record, output)
    record.held = (args, kwargs, output)  # inputs and outputs stay alive as long as the recording
    return record
