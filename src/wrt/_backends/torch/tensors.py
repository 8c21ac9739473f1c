"""Which tensors a recording has seen: one entry each, found by identity, dead when the tensor is."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from wrt._backends.torch.buffers import Buffer
from wrt._core.index import Shape

Tensor = torch.Tensor


class TensorRef(weakref.ref[torch.Tensor]):
    """A weak reference that knows its entry, so that all entries share one callback."""

    __slots__ = ("entry",)
    entry: Entry


class Entry:
    """One tensor object of the user's run; a stand-in for it where the tensor itself must not be kept alive.

    `number` is the value it has now in the graph; every write gives it a new one. `shadow` is its differentiable twin on
    the same memory, if it does not require grad itself.
    """

    __slots__ = ("buffer", "device", "dtype", "followed", "geometry", "node", "number", "output", "ref", "shadow", "shape", "stamp")

    def __init__(self, tensor: Tensor, number: int) -> None:
        self.ref = TensorRef(tensor, _gone)
        self.ref.entry = self
        self.number = number
        self.shape: Shape = tensor.shape  # a torch.Size is a tuple
        self.dtype = tensor.dtype
        self.device = tensor.device
        self.node = tensor.grad_fn
        self.output = tensor.output_nr
        self.followed = tensor.dtype.is_floating_point or tensor.dtype.is_complex
        self.geometry: tuple[Any, Any, int] | None = None
        self.shadow: Tensor | None = None
        self.buffer: Buffer | None = None
        self.stamp = 0

    def tensor(self) -> Tensor | None:
        return self.ref()

    def edge(self) -> GradientEdge | None:
        """Where gradients of its latest value enter the graph."""
        if self.node is not None:
            return GradientEdge(self.node, self.output)
        tensor = self.ref()
        if tensor is not None and tensor.requires_grad:
            return torch.autograd.graph.get_gradient_edge(tensor)
        return None


def _gone(ref: TensorRef) -> None:
    entry = ref.entry
    entry.shadow = None
    if entry.buffer is not None and not entry.buffer.writes:
        entry.buffer = None


def tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors among the arguments of a torch function, lists of them included."""
    found: list[Tensor] = []
    for arg in args:
        if isinstance(arg, Tensor):
            found.append(arg)
        elif type(arg) is list or type(arg) is tuple:
            found.extend(item for item in arg if isinstance(item, Tensor))
    if kwargs:
        for arg in kwargs.values():
            if isinstance(arg, Tensor):
                found.append(arg)
            elif type(arg) is list or type(arg) is tuple:
                found.extend(item for item in arg if isinstance(item, Tensor))
    return found


def swapped(arg: Any, twins: dict[int, Tensor]) -> Any:
    """An argument with its tensors replaced by their twins."""
    if isinstance(arg, Tensor):
        return twins.get(id(arg), arg)
    if type(arg) is list:
        return [swapped(item, twins) for item in arg]
    if type(arg) is tuple:
        return tuple(swapped(item, twins) for item in arg)
    return arg
