"""Code that a function mode does not look into: torch.func transforms, TorchScript, other threads.

They run as they would without a recording, on the user's own tensors. What depends on what inside is known to autograd
alone, for tensors that require grad: of all others nothing may be concluded from not having seen them used.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

import torch

from wrt._backends.torch.standing import Undo, here, stands_in
from wrt._backends.torch.tensors import Entry
from wrt._core.dataflow import flow, upstream
from wrt._core.graph import Graph
from wrt._core.value import Value
from wrt.errors import NoPath

if TYPE_CHECKING:
    from wrt._backends.torch.listen import Listener
    from wrt._backends.torch.recording import TorchRecording

_transform: Any = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)


def transforming() -> bool:
    """Whether a torch.func transform (vmap, grad, jvp) is at work, on tensors of its own."""
    return _transform() is not None


@stands_in
def elsewhere() -> Undo:
    """Know when a recording thread calls a scripted function or gives work to another thread.

    Scripted modules are modules, and have hooks.
    """
    undone = [_looking_away(kind, name) for kind, name in _AWAY]

    def undo() -> None:
        for one in undone:
            one()

    return undo


_AWAY: tuple[tuple[Any, str], ...] = (
    (torch.jit.ScriptFunction, "__call__"),
    (threading.Thread, "start"),
    (ThreadPoolExecutor, "submit"),
)


def _looking_away(kind: Any, name: str) -> Undo:
    original = getattr(kind, name)

    @wraps(original)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        recording = here()
        if recording is not None:
            recording.listener.looks_away()
        return original(self, *args, **kwargs)

    def undo() -> None:
        setattr(kind, name, original)

    setattr(kind, name, call)
    return undo


def may_come_from_there(listener: Listener, graph: Graph, needed: set[int]) -> bool:
    """Whether something that y was computed from first appeared after nobody had looked, and nobody saw it being made."""
    since = listener.unseen
    if since is None:
        return False
    made = {k for node in graph.nodes for k in node.outputs}
    return any(k >= since and k not in made for k in needed)


def brought_along(record: TorchRecording, y: Value, x: Value) -> NoPath | None:
    """The refusal where y uses what another recording made of x; None where none that is still there did."""
    tensor = x.key.entry()
    values, backend = record.listener.values, cast(Any, record.backend)
    for number in () if tensor is None or record.graph is None else sorted(upstream(record.graph, y.key.entry.number)):
        given = values[number]
        made = given() if isinstance(given, Entry) and given.operation is None else None
        there = None if made is None or made.requires_grad else backend.recorded(made)
        if there is None or there.record is record or there.key.entry.operation is None:
            continue
        source = there.record.known(tensor)
        if source is not None and not flow(there.record.graph, there.key.entry.number, source.number).independent:
            return _made_elsewhere(y.name or "y", x.name or "x", there.name or "a tensor")
    return None


def _made_elsewhere(y: str, x: str, between: str) -> NoPath:
    return NoPath(
        f"no gradient path from {x} to {y}",
        f"{y} uses {between}, which was made of {x} in another recording: each knows its own run only",
        f"put every line from {x} to {y} inside one `with wrt.record():`, or write {x}.requires_grad_() before both",
    )


def not_seen(y: str, x: str) -> NoPath:
    return NoPath(
        f"no gradient path from {x} to {y}",
        f"the run went through torch.func, TorchScript or a thread: what it made of {x}, without requires_grad, is not known",
        f"write {x}.requires_grad_() before the run: autograd follows it there too",
    )


def never_met(y: str, x: str) -> NoPath:
    return NoPath(
        f"no gradient path from {x} to {y}",
        f"the recording of {y} never met {x}: no line inside uses it, only perhaps what was made from it before",
        f"put every line from {x} to {y} inside `with wrt.record():`",
    )
