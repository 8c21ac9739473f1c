"""Differentiable twins: how a recording can differentiate tensors that never required grad, without touching them.

A twin is a tensor on the same memory, with the same version counter, that requires grad. The user's operation runs on
the twins; what the user gets back is a plain alias. Where the user's own tensor becomes part of a graph by an in-place
write, it adopts the history of its twin.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_SOURCE = torch.zeros((), requires_grad=True)  # makes autograd record; never receives a gradient


class Enter(torch.autograd.Function):
    """A twin: the same memory, as a new source of the graph."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, tensor: Tensor) -> Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        return None, None


class Adopt(torch.autograd.Function):
    """The user's tensor takes over the history of its twin; its numbers are the twin's already."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, twin: Tensor) -> Tensor:
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, gradients[0]


def enter(tensor: Tensor) -> Tensor:
    """A differentiable twin of a tensor that does not require grad."""
    twin: Tensor = Enter.apply(_SOURCE, tensor)
    return twin


def adopt(tensor: Tensor, twin: Tensor) -> None:
    """Give a plain tensor its twin's history, and leave its version counter where it was."""
    with torch.autograd._unsafe_preserve_version_counter(tensor):
        Adopt.apply(tensor, twin)


def is_twin_source(node: Any) -> bool:
    """Whether a node is where a twin enters the graph."""
    return type(node).__name__ == "EnterBackward"
