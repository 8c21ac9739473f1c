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
    twin on the same memory, if it does not require grad itself. Made for every operation, by `noted` or `noted_in_graph`
    alone: a constructor in Python would take as long as the rest of the note.
    """

    __slots__ = (
        "buffer", "geometry", "kind", "node", "number", "operation", "output", "requires_grad", "shadow", "size", "stamp",
    )
    __hash__ = object.__hash__

    number: int
    operation: int | None
    node: Any
    output: int
    requires_grad: bool
    shadow: Tensor | None
    buffer: Buffer | None
    geometry: Any
    stamp: int
    size: Shape | None  # None: its node knows
    kind: torch.dtype | None

    @property
    def shape(self) -> Shape:
        if self.size is None:
            self.size = tuple(self.node._input_metadata[self.output].shape)
        return self.size

    @property
    def dtype(self) -> torch.dtype:
        if self.kind is None:
            self.kind = self.node._input_metadata[self.output].dtype
        return self.kind

    def __eq__(self, other: object) -> bool:
        return self is other  # not the tensors' own comparison

    def met_inside(self, tensor: Tensor, operation: int) -> None:
        """It was seen (bound to a name) inside the operation that gives it only now its place in the graph."""
        self.node, self.output = node_of(tensor), tensor.output_nr
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


def node_of(tensor: Tensor) -> Any:
    """Where its history ends; None where torch refuses to say: a view taken without gradients whose base was written."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def edge_of(tensor: Tensor) -> GradientEdge | None:
    """Where gradients of a tensor that requires grad enter the graph; None where torch has no such place."""
    if tensor.is_inference():
        return None
    try:
        return torch.autograd.graph.get_gradient_edge(tensor)
    except NotImplementedError:  # torch finds no edge of a sparse leaf
        return None


def noted_in_graph(tensor: Tensor, number: int, operation: int, node: Any) -> Entry:
    """The entry of a result that the user's own graph holds: shape and dtype stay with its node until asked for."""
    entry = Entry(tensor)
    entry.number = number
    entry.operation = operation
    entry.node = node
    entry.output = tensor.output_nr
    entry.requires_grad = True
    entry.shadow = entry.buffer = entry.geometry = entry.size = entry.kind = None
    entry.stamp = 0
    return entry


def noted(tensor: Tensor, number: int, operation: int | None) -> Entry:
    """The entry of any tensor."""
    node = node_of(tensor)
    if node is not None and operation is not None and tensor.layout == torch.strided:
        return noted_in_graph(tensor, number, operation, node)
    entry = Entry(tensor, _gone)
    entry.number = number
    entry.operation = operation
    entry.node = node
    entry.output = tensor.output_nr
    entry.requires_grad = tensor.requires_grad
    entry.shadow = entry.buffer = entry.geometry = None
    entry.stamp = 0
    entry.size = torch.Size([tensor.size(0)]) if tensor.is_nested else tensor.shape  # a torch.Size is a tuple
    entry.kind = tensor.dtype
    return entry


def _gone(entry: Any) -> None:
    """The tensor died: its twin, which lies on the same memory, must not outlive it."""
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
            _listed(arg, found)
        elif isinstance(arg, Tensor):
            found.append(arg)
    if kwargs:
        for arg in kwargs.values():
            if isinstance(arg, Tensor):
                found.append(arg)
            elif type(arg) is list or type(arg) is tuple:
                _listed(arg, found)
    return found


def _listed(items: list[Any] | tuple[Any, ...], found: list[Tensor]) -> None:
    """`torch.tensor([[a, 0], [0, b]])` takes tensors out of lists in lists."""
    for item in items:
        if isinstance(item, Tensor):
            found.append(item)
        elif type(item) is list or type(item) is tuple:
            _listed(item, found)


def swapped(arg: Any, twins: dict[int, Tensor]) -> Any:
    """An argument with its tensors replaced by their twins."""
    if isinstance(arg, Tensor):
        return twins.get(id(arg), arg)
    if type(arg) is list:
        return [swapped(item, twins) for item in arg]
    if type(arg) is tuple:
        return tuple(swapped(item, twins) for item in arg)
    return arg
