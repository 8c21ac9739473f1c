"""State that changes beside the operations: parameters wrapped, backward calls, optimizers built, stepped and reset.

A function mode does not see these, so a recording stands in their way while it lasts. The user's own backward keeps its
graph, because `why` will want to walk it; a second backward through it is refused all the same, in torch's own words.
"""

from __future__ import annotations

import copy
import sys
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from wrt._backends.torch import compat
from wrt._backends.torch.listen import Listener
from wrt._backends.torch.standing import Undo, here, stands_in
from wrt._backends.torch.twins import is_twin_source
from wrt._core.evidence import Event, LostHistory
from wrt._core.finding import Finding
from wrt._core.where import place, spot, user_files

MODULE_HOOKS = ("register_full_backward_hook", "register_full_backward_pre_hook", "register_backward_hook")

NO_HISTORY = "does not require grad and does not have a grad_fn"


class Events:
    """The events of one recording, in order; `freed` are autograd nodes that torch alone would have emptied."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.noted: list[Event] = []
        self.freed: dict[Any, Event] = {}
        self._twins: set[Any] = set()
        self._looked = 0

    def note(self, kind: str, frame: FrameType | None, values: tuple[int, ...] = (), words: tuple[str, ...] = ()) -> Event:
        found = spot(frame)
        event = Event(kind, len(self.listener.operations), place(*found) if found else None, values, words)
        self.noted.append(event)
        return event

    def number(self, tensor: torch.Tensor) -> int:
        with torch._C.DisableTorchFunction():
            return self.listener.entry(tensor).number

    # ---------------------------------------------------------------- what happens

    def wrapped(self, data: Any, parameter: torch.Tensor, frame: FrameType | None) -> None:
        """`nn.Parameter(t)`: another leaf, with the numbers of t."""
        if not isinstance(data, torch.Tensor):
            return
        given = self.number(data)
        listener = self.listener
        with torch._C.DisableTorchFunction():
            entry = listener.entry(parameter)
        if entry.operation is None:
            entry.operation = len(listener.operations)
        name = "Parameter of a copy" if _called_from(frame, copy.__file__, "deepcopy") else "Parameter"
        listener.note(name, None, [given], [entry.number], spot(frame))

    def backward(self, roots: Any, retain: bool, inputs: Any, accumulate: bool, frame: FrameType | None) -> None:
        """The user's backward is about to run."""
        reached = self._own(roots)
        blocked = next((self.freed[node] for node in reached if node in self.freed), None)
        if blocked is not None:
            raise _freed(blocked)
        leaves = [node.variable for node in reached if compat.is_leaf_node(node)] if accumulate else []
        if accumulate and inputs:
            leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.is_leaf]
        held = [t for t in leaves if t.grad is not None and bool(t.grad.count_nonzero())]
        values = tuple(self.number(root) for root in roots if isinstance(root, torch.Tensor))
        words = ("adds", *(str(self.number(t)) for t in held)) if accumulate else ("asks",)
        event = self.note("backward", frame, values, words)
        if not retain:
            self.freed.update((node, event) for node in reached if compat.keeps_tensors(node))

    def _own(self, roots: Any) -> set[Any]:
        """The nodes of the user's own graph behind these: what hangs on twins would not be there without a recording."""
        values = self.listener.values
        for value in values[self._looked :]:
            if value.node is not None and not value.requires_grad:
                self._twins.add(value.node)
        self._looked = len(values)
        waiting = [node for root in roots if (node := compat.node_of(root)) is not None]
        reached = set(waiting)
        while waiting:
            for upstream, _ in waiting.pop().next_functions:
                if upstream is None or upstream in reached or upstream in self._twins or is_twin_source(upstream):
                    continue
                reached.add(upstream)
                waiting.append(upstream)
        return reached

    def optimizer(self, optimizer: Any, kind: str, frame: FrameType | None) -> None:
        """Built, stepped, or asked to reset gradients."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.note(kind, frame, tuple(self.number(p) for p in parameters))


def _freed(by: Event) -> RuntimeError:
    """Torch's own error, which also knows the call that freed the graph."""
    error = RuntimeError(compat.Words.FREED_IN_FULL)
    sentence = "the graph was freed by this earlier backward"
    remedy = "compute it again, or pass retain_graph=True here"
    finding = Finding("graph_freed", sentence, by.where, True, compat.Words.FREED, remedy)
    error.finding = finding  # type: ignore[attr-defined]
    return error


@stands_in
def parameters() -> Undo:
    """`nn.Parameter(t)` bypasses function modes."""
    was, original = vars(torch.nn.Parameter)["__new__"], torch.nn.Parameter.__new__

    def new(cls: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        made = original(cls, data, *args, **kwargs)
        recording = here()
        if recording is not None and isinstance(made, torch.Tensor):
            recording.events.wrapped(data, made, sys._getframe(1))
        return made

    def undo() -> None:
        torch.nn.Parameter.__new__ = was

    torch.nn.Parameter.__new__ = new
    return undo


@stands_in
def module_hooks() -> Undo:
    """Hooks that modules will put into the graph when they are called: remember who asked for them.

    By the handle that every registration makes: to replace methods of `nn.Module` itself, with its hundreds of
    subclasses, would cost as much as ten operations.
    """
    handles: Any = torch.utils.hooks.RemovableHandle
    original = handles.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        frame = sys._getframe(1)
        if frame.f_code.co_name in MODULE_HOOKS and (recording := here()) is not None:
            recording.events.note("module_hook", frame)

    def undo() -> None:
        handles.__init__ = original

    handles.__init__ = made
    return undo


@stands_in
def backwards() -> Undo:
    """Stand in front of the one call through which every backward of the user's goes."""
    original: Any = torch.autograd._engine_run_backward

    def run(roots: Any, seeds: Any, retain: Any, create: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        recording = here()
        if recording is None or _is_ours(frame):
            return original(roots, seeds, retain, create, inputs, *args, **kwargs)
        with torch._C.DisableTorchFunction():
            recording.events.backward(roots, bool(retain), inputs, bool(kwargs.get("accumulate_grad")), frame)
        try:
            return original(roots, seeds, True, create, inputs, *args, **kwargs)
        except RuntimeError as error:
            values = recording.events.noted[-1].values
            if NO_HISTORY in str(error) and values:
                lost = LostHistory(recording.evidence, values[0], recording.bound_at)
                error.without_history = lost  # type: ignore[attr-defined]  # for `why(error)`
            raise

    def undo() -> None:
        torch.autograd._engine_run_backward = original

    torch.autograd._engine_run_backward = run
    return undo


@stands_in
def optimizers() -> Undo:
    """Optimizers that are built, stepped, or asked to reset gradients."""
    base = torch.optim.Optimizer
    init, zero = base.__init__, base.zero_grad

    def note(optimizer: Any, kind: str, frame: FrameType) -> None:
        recording = here()
        if recording is not None:
            recording.events.optimizer(optimizer, kind, frame)

    def built(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        note(self, "optimizer", sys._getframe(1))

    def reset(self: Any, *args: Any, **kwargs: Any) -> None:
        zero(self, *args, **kwargs)
        note(self, "zero_grad", sys._getframe(1))

    def stepped(self: Any, args: Any, kwargs: Any) -> None:
        note(self, "step", sys._getframe(1))

    def undo() -> None:
        base.__init__, base.zero_grad = init, zero
        handle.remove()

    base.__init__, base.zero_grad = built, reset
    handle = register_optimizer_step_post_hook(stepped)
    return undo


def _is_ours(frame: FrameType | None) -> bool:
    """Whether wrt itself runs this backward: asked for by a sweep, not by the user's code."""
    while frame is not None and not user_files[frame.f_code.co_filename]:
        if frame.f_globals.get("__name__", "").startswith("wrt._backends.torch.sweep"):
            return True
        frame = frame.f_back
    return False


def _called_from(frame: FrameType | None, file: str, function: str) -> bool:
    while frame is not None and not user_files[frame.f_code.co_filename]:
        if frame.f_code.co_filename == file and frame.f_code.co_name == function:
            return True
        frame = frame.f_back
    return False
