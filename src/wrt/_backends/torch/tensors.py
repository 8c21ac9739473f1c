"""Which tensors a recording has seen: one entry each, found by identity, dead when the tensor is."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from wrt._backends.torch.buffers import Buffer
from wrt._core.index import Shape


class Entry(weakref.ref[torch.Tensor]):
    """One tensor object of the user's run: a weak reference that stands in for it, called to get the tensor.

    It is also the note of the value the tensor has now: `number` in the graph, shape, dtype, where gradients enter
    (`node`, `output`), the operation that made it. Every write gives it a new number. `shadow` is its differentiable
    twin on the same memory, if it does not require grad itself. Made for every operation, so it holds little.
    """

    __slots__ = (
        "buffer", "dtype", "geometry", "node", "number", "operation", "output", "requires_grad", "shadow", "shape",
        "stamp",
    )
    __hash__ = object.__hash__

    def __new__(cls, tensor: Tensor, number: int, operation: int | None) -> Entry:
        return super().__new__(cls, tensor, _gone)

    def __init__(self, tensor: Tensor, number: int, operation: int | None) -> None:
        self.number = number
        self.shape: Shape = tensor.shape  # a torch.Size is a tuple
        self.dtype = tensor.dtype
        self.node = tensor.grad_fn
        self.output = tensor.output_nr
        self.operation = operation
        self.requires_grad = tensor.requires_grad
        self.shadow: Tensor | None = None
        self.buffer: Buffer | None = None
        self.geometry: Any = None
        self.stamp = 0

    def __eq__(self, other: object) -> bool:
        return self is other  # not the tensors' own comparison

    def met_inside(self, tensor: Tensor, operation: int) -> None:
        """It was seen (bound to a name) inside the operation that gives it only now its place in the graph."""
        self.node, self.output = tensor.grad_fn, tensor.output_nr
        self.operation, self.requires_grad = operation, tensor.requires_grad

    @property
    def followed(self) -> bool:
        """Whether it can have a derivative at all."""
        return self.dtype.is_floating_point or self.dtype.is_complex

    @property
    def device(self) -> torch.device:
        tensor = self()
        if tensor is not None:
            return tensor.device
        if self.node is None:
            return torch.device("cpu")
        device: torch.device = self.node._input_metadata[self.output].device
        return device

    def edge(self) -> GradientEdge | None:
        """Where gradients of its latest value enter the graph."""
        if self.node is not None:
            return GradientEdge(self.node, self.output)
        tensor = self()
        if tensor is not None and tensor.requires_grad:
            return torch.autograd.graph.get_gradient_edge(tensor)
        return None


def _gone(entry: Any) -> None:
    entry.shadow = None
    if entry.buffer is not None and not entry.buffer.writes:
        entry.buffer = None


def tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors among the arguments of a torch function, lists of them included."""
    found: list[Tensor] = []
    for arg in args:
        kind = type(arg)
        if kind is Tensor:
            found.append(arg)
        elif kind is list or kind is tuple:
            found.extend([item for item in arg if isinstance(item, Tensor)])
        elif isinstance(arg, Tensor):
            found.append(arg)
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
