"""The backward passes of a training loop: the gradients that each of them brought to a model's parameters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from wrt._backends.torch import compat

Due = Callable[[], bool]
Saw = Callable[[dict[str, Any] | None], None]


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
