"""Tensors that a recording has seen: one entry each, found by identity, dead when the tensor is; and how shadows are made.

A shadow is how a recording differentiates tensors that never required grad, without touching them: a tensor on the same memory,
with the same version counter, that requires grad. The user's operation runs on the shadows; what the user gets back is a plain
alias. Where the user's own tensor becomes part of a graph by an in-place write, it adopts the history of its shadow.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from wrt._backends.torch.compat import function_of, keep_version_counter, metadata
from wrt._core.index import Shape

if TYPE_CHECKING:
    from wrt._backends.torch.recording.writes import Buffer


class Entry(weakref.ref[torch.Tensor]):
    """One tensor object of the user's run: a weak reference that stands in for it, called to get the tensor.

    It is also the note of the value the tensor has now: `number` in the graph, shape, dtype, where gradients enter
    (`node`, `output`), the operation that made it. Every write gives it a new number. `shadow` lies on the same memory, if the
    tensor does not require grad itself. Made for every operation, by `new_entry` or `entry_in_graph` alone: a constructor in
    Python would take as long as the rest of the note.
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
            self.size = tuple(metadata(self.node, self.output).shape)
        return self.size

    @property
    def dtype(self) -> torch.dtype:
        if self.kind is None:
            self.kind = metadata(self.node, self.output).dtype
        return self.kind

    @property
    def device(self) -> torch.device:
        tensor = self()
        if tensor is None and self.node is None:
            return torch.device("cpu")
        device: torch.device = (metadata(self.node, self.output) if tensor is None else tensor).device
        return device

    @property
    def differentiable(self) -> bool:
        """Whether it can have a derivative at all."""
        return self.dtype.is_floating_point or self.dtype.is_complex

    def __eq__(self, other: object) -> bool:
        return self is other  # not the tensors' own comparison

    def place(self, tensor: Tensor, operation: int) -> None:
        """It was seen (bound to a name) inside the operation that gives it only now its place in the graph."""
        self.node, self.output = node_of(tensor), tensor.output_nr
        self.operation, self.requires_grad = operation, tensor.requires_grad

    def cast(self, shadow: Tensor, buffer: Buffer | None) -> None:
        """It is the plain face of this shadow."""
        self.shadow, self.node, self.output = shadow, shadow.grad_fn, shadow.output_nr
        self.buffer, self.stamp = buffer, 0 if buffer is None else buffer.writes

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


def entry_in_graph(tensor: Tensor, number: int, operation: int, node: Any) -> Entry:
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


def new_entry(tensor: Tensor, number: int, operation: int | None) -> Entry:
    """The entry of any tensor."""
    node = node_of(tensor)
    if node is not None and operation is not None and tensor.layout == torch.strided:
        return entry_in_graph(tensor, number, operation, node)
    entry = Entry(tensor, _drop_shadow)
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


def _drop_shadow(entry: Any) -> None:
    """The tensor died: its shadow, which lies on the same memory, must not outlive it."""
    entry.shadow = None
    if entry.buffer is not None and not entry.buffer.writes:
        entry.buffer = None


def tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors among the arguments of a torch function, lists of them included."""
    found: list[Tensor] = []
    for arg in (*args, *kwargs.values()) if kwargs else args:
        kind = type(arg)
        if kind is Tensor:
            found.append(arg)
        elif kind is list or kind is tuple:
            _collect(arg, found)
        elif isinstance(arg, Tensor):
            found.append(arg)
    return found


def _collect(items: list[Any] | tuple[Any, ...], found: list[Tensor]) -> None:
    """`torch.tensor([[a, 0], [0, b]])` takes tensors out of lists in lists."""
    for item in items:
        if isinstance(item, Tensor):
            found.append(item)
        elif type(item) is list or type(item) is tuple:
            _collect(item, found)


# ---------------------------------------------------------------- shadows

_SOURCE = torch.zeros((), requires_grad=True)  # makes autograd record; never receives a gradient


class Shadow(torch.autograd.Function):
    """The same memory, as a new source of the graph."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, tensor: Tensor) -> Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        return None, None


class Adopt(torch.autograd.Function):
    """The user's tensor takes over the history of its shadow; its numbers are the shadow's already."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, shadow: Tensor) -> Tensor:
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, gradients[0]


def new_shadow(tensor: Tensor) -> Tensor:
    """A differentiable shadow of a tensor that does not require grad."""
    shadow: Tensor = Shadow.apply(_SOURCE, tensor)
    return shadow


def adopt_history(tensor: Tensor, shadow: Tensor | None) -> None:
    """Give a plain tensor its shadow's history, and leave its version counter where it was."""
    with keep_version_counter(tensor):
        Adopt.apply(tensor, shadow)


def is_shadow_source(node: Any) -> bool:
    """Whether a node is where a shadow enters the graph."""
    return function_of(node) is Shadow
