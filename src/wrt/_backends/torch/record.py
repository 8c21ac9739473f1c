"""Recording a run of torch code: everything that listens, put in place around it and taken away again."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from wrt._backends.torch import checkpoints, events, functions, modules
from wrt._backends.torch.listen import Listener
from wrt._backends.torch.recording import TorchRecording, is_tensor
from wrt._backends.torch.registry import RECORDINGS, keep_while_used, running
from wrt._core.bindings import Binding
from wrt._core.watch import Watcher
from wrt._core.where import user_frame

_COUNT = iter(range(1, 2**62))


@contextmanager
def recording(backend: Any, *, values: bool = False) -> Iterator[TorchRecording]:
    """Record what the current thread does with torch tensors."""
    record = TorchRecording(backend)
    record.started = next(_COUNT)
    record.thread = threading.get_ident()
    outer = running()
    if outer is not None:  # one listener a thread: an inner recording has names of its own and shares the rest
        record.listener, record.paths, record.events = outer.listener, outer.paths, outer.events
    listener = record.listener
    keep_before = listener.keep
    if values:
        listener.keep = record.kept if keep_before is None else keep_before
    record.kept = {} if listener.keep is None else listener.keep
    RECORDINGS.add(record)
    weakly = weakref.ref(record)  # the watcher outlives the block by a garbage collection; the recording must not

    def bound(binding: Binding) -> None:
        held = weakly()
        if held is not None:
            binding.object = held.listener.stand_in(binding.object)  # names keep no tensor alive
            held.bound_names.add(binding)

    with ExitStack() as stack:
        if outer is None:
            _listen(stack, record)
        watched_before = sys.gettrace()
        stack.enter_context(Watcher(is_tensor, bound))
        if outer is None:
            listener.tracer = sys.gettrace() if watched_before is None else None
        record.running = True
        try:
            yield record
        finally:
            record.running = False
            listener.keep = keep_before
            record.name_what_was_there(user_frame(sys._getframe(1)))
            if outer is None:
                listener.let_go()
            keep_while_used(record)


def _listen(stack: ExitStack, record: TorchRecording) -> None:
    """Put everything in place that notes what happens; the stack takes it away again."""
    listener = record.listener
    if "torch._dynamo" in sys.modules:  # compiled code is one opaque node: run it eagerly
        stack.enter_context(torch.compiler.set_stance("force_eager"))
    stack.enter_context(modules.followed(record.paths, _enter(listener), _leave(record)))
    stack.enter_context(functions.followed(listener))
    stack.enter_context(events.followed(record.events))
    stack.enter_context(checkpoints.kept_open())
    stack.enter_context(listener)


def _enter(listener: Listener) -> Callable[[str], None]:
    def enter(path: str) -> None:
        listener.module = path

    return enter


def _leave(record: TorchRecording) -> Callable[[str, list[Tensor], list[Tensor]], None]:
    """Names for what a module took and gave: `conv1`, `conv1.input`."""

    def leave(path: str, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        if not path:
            return
        with torch._C.DisableTorchFunction():
            for k, tensor in enumerate(inputs):
                record.name(f"{path}.input" if len(inputs) == 1 else f"{path}.input[{k}]", tensor)
            for k, tensor in enumerate(outputs):
                record.name(path if len(outputs) == 1 else f"{path}[{k}]", tensor)

    return leave


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
