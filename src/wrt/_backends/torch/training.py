"""A model while it runs and learns: its state, put back afterwards, and the gradients that backward passes brought."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from types import FrameType
from typing import Any

import torch

from wrt._backends.torch import compat

Due = Callable[[], bool]
Saw = Callable[[dict[str, Any] | None], None]
Table = dict[str, torch.Tensor | None]


class kept:  # a generator would take as long as everything else here
    """Modules among the objects run inside on copies of their buffers, and torch's generators are put back afterwards.

    The buffers themselves are never written: what a recorded run has saved of its own stays as it was then.
    """

    __slots__ = ("compiled", "copies", "on_devices", "state", "tables")

    def __init__(self, objects: Sequence[Any]) -> None:
        self.tables: list[tuple[Table, Table]] = []
        self.compiled: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.copies: dict[int, torch.Tensor] = {}
        for module in chain.from_iterable(map(_modules, objects)):
            if isinstance(module, torch.jit.ScriptModule):  # nothing can be put in the places of its buffers
                self.compiled += [(one, one.detach().clone()) for one in module.buffers(recurse=False)]
            elif module._buffers:
                self.tables.append((module._buffers, dict(module._buffers)))
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
        self.state = torch.get_rng_state()
        self.on_devices = [(device, torch.cuda.get_rng_state(device)) for device in devices]

    def __enter__(self) -> None:
        for table, before in self.tables:
            table.update({name: self._copied(buffer) for name, buffer in before.items() if buffer is not None})

    def _copied(self, buffer: torch.Tensor) -> torch.Tensor:
        """The same copy for one buffer in two places."""
        found = self.copies.get(id(buffer))
        if found is None:
            found = self.copies[id(buffer)] = buffer.detach().clone().requires_grad_(buffer.requires_grad)
        return found

    def __exit__(self, *error: object) -> None:
        torch.set_rng_state(self.state)
        for device, state in self.on_devices:
            torch.cuda.set_rng_state(state, device)
        for table, before in self.tables:
            table.update(before)
        for buffer, saved in self.compiled:
            if not torch.equal(buffer, saved):
                with torch.no_grad():
                    buffer.copy_(saved)


def _modules(obj: Any) -> Iterable[torch.nn.Module]:
    """A model, or that behind a bound method of one, with all its parts."""
    model = obj if isinstance(obj, torch.nn.Module) else getattr(obj, "__self__", None)
    return model.modules() if isinstance(model, torch.nn.Module) else ()


@contextmanager
def stepping(model: Any, due: Due, saw: Saw, missed: Callable[[str], None]) -> Iterator[None]:
    """Call `saw` after every backward pass that reached a parameter, with the gradients if the step is due."""
    if not isinstance(model, torch.nn.Module):
        yield
        return
    step = _Step(due, saw)
    hooks = [
        parameter.register_post_accumulate_grad_hook(step.arrival(name))
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        step.over()


class _Step:
    """What has arrived since a backward pass began. The engine says when it ends, also where some parameters get nothing."""

    def __init__(self, due: Due, saw: Saw) -> None:
        self.due, self.saw = due, saw
        self.arrived: dict[str, Any] = {}
        self.end_is_coming = False

    def arrival(self, name: str) -> Callable[[torch.Tensor], None]:
        def note(parameter: torch.Tensor) -> None:
            if name in self.arrived and not self.end_is_coming:  # its second time, and nobody said that the first was over
                self.over()
            self.arrived[name] = parameter.grad.detach().clone() if self.due() and parameter.grad is not None else None
            if not self.end_is_coming:
                self.end_is_coming = True
                compat.when_backward_ends(self.ended)

        return note

    def ended(self) -> None:
        self.end_is_coming = False
        if not _backward_is_nested():  # a checkpoint runs a backward pass of its own inside the one that counts
            self.over()

    def over(self) -> None:
        arrived, self.arrived = self.arrived, {}
        if arrived:
            self.saw(arrived if self.due() else None)


def _backward_is_nested() -> bool:
    """Whether the backward pass that is running was begun by another one: a reentrant checkpoint."""
    frame: FrameType | None = sys._getframe(1)
    running = 0
    while frame is not None:
        running += frame.f_code.co_name == compat.ENGINE_CALL
        frame = frame.f_back
    return running > 1
