"""The record that needs no recording: the autograd graph that hangs on every live tensor."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence, Sized
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch.autograd.graph import GradientEdge

from wrt._backends.torch import compat, sharded
from wrt._backends.torch import flow as graph_flow
from wrt._backends.torch.engine import TorchEngine
from wrt._backends.torch.pairs import local_maps
from wrt._backends.torch.patch import TorchPatches, patches
from wrt._backends.torch.refusals import reentrant_checkpoint
from wrt._backends.torch.views import base_side
from wrt._core.flow import Flow, LocalMaps
from wrt._core.graph import Graph
from wrt._core.index import Elements
from wrt._core.protocol import Backend
from wrt._core.value import Part, Side, Value
from wrt._names.peek import called
from wrt.errors import NoPath, NotDifferentiable, NotRecorded


class Moment:
    """A tensor as it was when asked about: the edge is a snapshot, later writes do not move it.

    `view` keeps a view alive: `d(x[0])` is often the only one to hold it, and its base is where the answer may lie.
    `leaf` is a leaf whose edge nobody needed yet: the engine takes the tensor itself, and making the edge takes time.
    """

    __slots__ = ("_edge", "device", "flow", "leaf", "retained", "signature", "tensor", "version", "view", "widest")

    def __init__(self, edge: GradientEdge | None, tensor: torch.Tensor | None, device: torch.device | None = None) -> None:
        """Of a tensor as it is now; of an edge alone, on a device, where nobody holds the tensor."""
        self._edge = edge
        self.tensor: Callable[[], torch.Tensor | None]
        if tensor is None:
            self.device, self.tensor, self.version, self.view, self.leaf = device, graph_flow.no_tensor, -1, None, None
        else:
            self.device = tensor.device
            self.tensor = weakref.ref(tensor)
            self.version = tensor._version
            self.view = tensor if tensor._is_view() else None
            self.leaf = tensor if edge is None and tensor.requires_grad else None  # its edge is made when somebody needs it
        self.signature: tuple[Hashable, dict[Any, int]] | None = None
        self.widest: int | None = None
        self.retained: list[weakref.ref[torch.Tensor]] | None = None  # tensors of the user's that keep their gradient
        self.flow: tuple[tuple[Any, ...], Flow | None] | None = None  # of the last question

    @property
    def edge(self) -> GradientEdge | None:
        """Where its gradient enters the graph; None if it has no history."""
        if self._edge is None and self.leaf is not None:
            self._edge = compat.edge_of_leaf(self.leaf)
        return self._edge

    @property
    def target(self) -> GradientEdge | torch.Tensor | None:
        """What the engine is to differentiate by: the leaf while it still is one, otherwise the edge."""
        leaf = self.leaf
        if leaf is not None and self._edge is None and leaf.requires_grad and leaf.is_leaf:
            return leaf
        return self.edge


class LiveRecord:
    """All live graphs of the process; a Value is an edge into one of them."""

    recorded = False
    again: Any = None
    outside = nullcontext  # the engine leaves the user's modes by itself
    answers = None  # tensors can be written to, and hooks can change

    def __init__(
        self, backend: Backend, recordings: Sized = (), find_recorded: Callable[[Any], Value | None] = lambda obj: None
    ) -> None:
        self.backend = backend
        self.recordings = recordings
        self.find_recorded = find_recorded

    @property
    def graph(self) -> Graph | None:
        return None

    def lift_for_user(self, obj: torch.Tensor) -> Value:
        """The Value that a tensor of the user's is now, in the recording that knows it if there is one."""
        if obj.dtype not in _DIFFERENTIABLE:
            raise no_derivative(obj.dtype)
        if obj.is_meta:
            raise NotRecorded(
                "d() of a tensor on the meta device",
                "it has a shape and a type, but no numbers to differentiate at",
                "run the code on the CPU or a GPU: model.to_empty(device=...) and load its weights first",
            )
        if compat.is_wrapped(obj):
            raise NotRecorded(
                "d() inside of torch.func.grad, vmap, jvp or another transform",
                "the tensor stands for many, or for its own derivative; its history belongs to the transform",
                "ask d(y) / d(x) outside of the transform, or nest torch.func's own transforms",
            )
        if obj.is_inference():
            raise NotRecorded(
                "d() of an inference tensor",
                "it was made under torch.inference_mode(), which keeps no history and can never get one",
                "compute it outside of torch.inference_mode(), with gradients switched on",
            )
        if obj.layout != torch.strided:
            raise NotDifferentiable(
                f"d() of a tensor of layout {str(obj.layout).removeprefix('torch.')}",
                "the elements of a sparse tensor have no fixed positions",
                "ask for d(tensor.values()), or make it dense with tensor.to_dense()",
            )
        if type(obj) is not torch.Tensor:
            sharded.refuse_parts(obj)
            obj = sharded.as_computed(obj)
        recorded = self.find_recorded(obj) if self.recordings else None
        if recorded is not None:
            return recorded
        edge = compat.inner_edge(obj)
        return Value(self, Moment(edge, obj), tuple(obj.shape), obj.dtype)

    def lift(self, tensor: torch.Tensor) -> Value:
        """The same of a tensor that is known to be one of a live graph."""
        return Value(self, Moment(compat.inner_edge(tensor), tensor), tuple(tensor.shape), tensor.dtype)

    def join(self, other: Any) -> Any:
        return other if isinstance(other, LiveRecord) else None  # a recording knows more than a live graph

    def side(self, value: Value, elements: Elements) -> Side:
        view = value.key.view
        otherwise = None if view is None else base_side(self.lift, view, elements)
        return Side(elements.shape, (Part(value, elements),), otherwise)

    def engine(self, y: Value, xs: Sequence[Value]) -> TorchEngine:
        return TorchEngine(y, xs)

    def recorded_function(self, y: Value, x: Value) -> None:
        return None

    # ---------------------------------------------------------------- what plans are made from

    def signature(self, y: Value, xs: Sequence[Value]) -> Hashable:
        moment = y.key
        if moment.signature is None:
            moment.signature = graph_flow.signature(y)
        found, numbers = moment.signature
        return found, *(numbers.get(x.key.edge.node, -1) << 3 | x.key.edge.output_nr for x in xs if x.key.edge is not None)

    def flow(self, y: Value, xs: Sequence[Value]) -> Flow | None:
        """Walked once for each question."""
        moment, ends = y.key, tuple([x.key for x in xs])
        if moment.flow is None or moment.flow[0] != ends:
            moment.flow = ends, graph_flow.flow(y, xs, self._at_edge)
        known: Flow | None = moment.flow[1]
        return known

    def at_address(self, y: Value, xs: Sequence[Value], address: Any) -> Value | None:
        return graph_flow.at_address(y, address, self._at_edge)

    def last_weights(self, y: Value, xs: Sequence[Value]) -> tuple[Value, torch.Tensor] | None:
        return graph_flow.weights(y.key.edge.node, xs, self._at_edge)

    def local_maps(self, y: Value, x: Value, *, certain: bool = False) -> LocalMaps | None:
        return local_maps(y, x, certain=certain)

    def widest(self, y: Value) -> int:
        moment = y.key
        if moment.widest is None:
            moment.widest = graph_flow.widest(y)
        return int(moment.widest)

    def patches(self, y: Value, rows: Elements, x: Value, columns: Elements) -> TorchPatches | None:
        return patches(y, rows, x, columns)

    def _at_edge(self, edge: GradientEdge) -> Value:
        metadata = edge.node._input_metadata[edge.output_nr]
        return Value(self, Moment(edge, None, metadata.device), tuple(metadata.shape), metadata.dtype)

    def same(self, y: Value, x: Value) -> bool:
        """Whether two Values are one tensor at one moment."""
        a, b = y.key, x.key
        if a.leaf is not None and b.leaf is not None:
            return a.leaf is b.leaf
        if b.leaf is not None and a._edge is not None and type(a._edge.node) is not compat.ACCUMULATE:
            return False
        if a.edge is not None and b.edge is not None:
            return compat.same_edge(a.edge, b.edge)
        return a.tensor() is not None and a.tensor() is b.tensor() and a.version == b.version

    def refuse_filled(self, value: Value) -> None:
        """A tensor that was filled piece by piece is not one value, and its history does not tell the pieces apart."""
        moment = value.key
        if moment.version > 0 and (moment.edge is None or type(moment.edge.node).__name__ == "CopySlices"):
            name = _name(value, "y")
            raise NotRecorded(
                f"d({name})[i] / d({name})[j] of a tensor that was written in place",
                "which of its elements was computed from which is not known: no recording saw the writes",
                "run the code that fills it inside `with wrt.record():`",
            )

    def has_history(self, value: Value) -> bool:
        moment = value.key
        return moment._edge is not None or moment.leaf is not None

    def ready(self, y: Value, x: Side) -> None:
        """Raise where there is no history to differentiate; of one tensor by itself none is needed."""
        if y.key.retained is None:
            found = compat.retained_here(sys._getframe(2))
            y.key.retained = found and [weakref.ref(tensor) for tensor in found]
        if y.key._edge is None and y.key.edge is None:
            if len(x.parts) == 1 and self.same(y, x.parts[0].value):
                return
            raise _no_history(y, f"{_name(y, 'y')} does not require grad, so torch kept no history of it", y, x)
        side: Side | None = x
        while side is not None:
            for part in side.parts:
                if part.value.key._edge is None and part.value.key.leaf is None:
                    break
            else:
                return
            side = side.otherwise
        asked = x.parts[0].value
        raise _no_history(asked, f"{_name(asked, 'x')} does not require grad, so torch kept no path to it", y, x)

    def value(self, value: Value) -> Any:
        tensor = value.key.tensor()
        if tensor is None or tensor._version != value.key.version:
            raise NotRecorded(
                "the numbers this tensor had are gone",
                "it was changed in place or deleted since",
                "run the code with wrt.trace(f, x, values=True)",
            )
        return tensor.detach()

    def unreached(self, y: Value, x: Value) -> bool | Exception:
        if x.key.edge is not None and y.key.version <= 0 and self._made_from(x, y):
            return True  # x is computed from y, which was never written: graphs have no cycles, so y cannot depend on x
        if any(map(compat.is_reentrant_checkpoint, compat.reachable(y.key.edge.node))):
            return reentrant_checkpoint()  # its inside, with every parameter in it, is hidden from the graph
        a, b = _name(y, "y"), _name(x, "x")
        return NoPath(
            f"no gradient path from {b} to {a}",
            f"torch's graph of {a} does not contain {b}: a line between them cuts it, or {a} never used this tensor",
            f"run the code inside `with wrt.record():` and ask wrt.why({a}, {b}); J.connected tells without an error",
        )

    @staticmethod
    def _made_from(later: Value, earlier: Value) -> bool:
        target = earlier.key.edge.node
        return any(node is target for node in compat.reachable(later.key.edge.node))

    def notes(self, y: Value, x: Side) -> list[str]:
        return [*x.notes, *(hook_notes(y.key.edge.node, x) if y.key.edge is not None else ())]


_DIFFERENTIABLE = frozenset({
    torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex128, torch.complex64, torch.complex32,
})  # fmt: skip


def no_derivative(dtype: torch.dtype) -> NotDifferentiable:
    """Why tensors of this type are not differentiated."""
    what = f"d() of a tensor of {str(dtype).removeprefix('torch.')}"
    if dtype.is_floating_point:
        return NotDifferentiable(
            what,
            "torch stores numbers in this type and does not compute in it: gradients of such a tensor do not exist",
            "ask for the tensor before it was converted, or convert it with .float()",
        )
    return NotDifferentiable(
        what,
        "whole numbers and booleans have no derivative; the path ends where the value was made so",
        "ask for the floating-point tensor it was computed from, for example the embedding of token ids",
    )


def _name(value: Value, letter: str) -> str:
    """What the user calls it."""
    return value.name or called(value.key.tensor(), letter)


def _no_history(value: Value, what: str, y: Value, x: Side) -> NotRecorded | NotDifferentiable:
    if value.dtype not in _DIFFERENTIABLE:
        return no_derivative(value.dtype)
    a, b = _name(y, "y"), _name(x.parts[0].value, "x")
    tensor = value.key.tensor()
    write = f"{b}.requires_grad_() before computing {a}, or run the code inside `with wrt.record():`"
    if tensor is not None and tensor.is_inference():
        write = f"compute {a} outside of torch.inference_mode()"
    return NotRecorded(what, _why_no_history(tensor), write)


def _why_no_history(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "the tensor is gone"
    if tensor.is_inference():
        return "it was made under torch.inference_mode()"
    if not torch.is_grad_enabled():
        return "gradients are switched off here: torch.no_grad() or set_grad_enabled(False) is active"
    if np.prod(tensor.shape) and tensor.is_leaf:
        return "it is a leaf with requires_grad=False: nothing before it, or everything before it, was cut off"
    return "requires_grad is False"


# ---------------------------------------------------------------- hooks of the user's


def hook_notes(start: Any, x: Side) -> Iterator[str]:
    """One sentence for each tensor or module with hooks between here and x: the answer is the gradient they train with.

    Tensors and nodes are asked when somebody wants to know, by a walk through the graph: nothing listens in between.
    """
    if not compat.hooks_so_far():
        return
    nodes = set(compat.reachable(start))
    between = nodes | {value.key.edge.node for value in x.values if value.key.edge is not None}
    kinds = {torch.Tensor, *_below(torch.Tensor)}
    for tensor in [one for one in gc.get_objects() if type(one) in kinds]:
        edge = compat.edge_of(tensor) if tensor.requires_grad and tensor._backward_hooks else None
        if edge is not None and edge.node in between:
            name = called(tensor, f"the tensor of shape {tuple(tensor.shape)}")
            yield f"{_hooks(len(tensor._backward_hooks))} on {name}: the answer is the gradient you train with"
    on_modules = [node for node in nodes if compat.is_module_hook(node)]
    on_nodes = sum(compat.node_hooks(node) for node in between.difference(on_modules))
    if on_nodes:
        yield f"{_hooks(on_nodes)} on nodes of the graph: the answer is the gradient you train with"
    if on_modules:
        yield f"{_hooks(len(on_modules))} on modules: the answer is the gradient you train with"


def _below(kind: type) -> Iterator[type]:
    below: list[type] = type.__subclasses__(kind)
    for one in below:
        yield one
        yield from _below(one)


def _hooks(count: int) -> str:
    return "a hook of yours acts" if count == 1 else f"{count} hooks of yours act"
