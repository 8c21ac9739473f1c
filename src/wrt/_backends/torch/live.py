"""The record that needs no recording: the autograd graph that hangs on every live tensor."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd.graph import GradientEdge

from wrt._backends.torch import compat, cuts
from wrt._backends.torch.arrays import unit
from wrt._backends.torch.cone import Cone, cone
from wrt._backends.torch.hooks import hook_notes, may_act
from wrt._backends.torch.pairs import local_maps
from wrt._backends.torch.refusals import reentrant_checkpoint
from wrt._backends.torch.rules.gain import TAKEN_APART, come_first
from wrt._backends.torch.rules.program import Program
from wrt._backends.torch.rules.question import program_of
from wrt._backends.torch.sweep import TorchLinear, row
from wrt._backends.torch.trusted import TRUSTED, trusted
from wrt._backends.torch.views import base_side
from wrt._core.flow import Flow
from wrt._core.graph import Graph
from wrt._core.index import Elements
from wrt._core.local_maps import LocalMaps
from wrt._core.protocol import Backend
from wrt._core.value import Part, Side, Value
from wrt._names.spoken import called
from wrt.errors import NoPath, NotRecorded


class Moment:
    """A tensor as it was when asked about: the edge is a snapshot, later writes do not move it.

    `view` keeps a view alive: `d(x[0])` is often the only one to hold it, and its base is where the answer may lie.
    `leaf` is a leaf whose edge nobody needed yet: the engine takes the tensor itself, and making the edge takes time.
    """

    __slots__ = (
        "_edge", "apart", "device", "flow", "leaf", "operations", "program", "signature", "tensor", "trusted", "version", "view",
        "widest",
    )  # fmt: skip

    def __init__(
        self,
        edge: GradientEdge | None,
        device: torch.device,
        tensor: weakref.ref[torch.Tensor],
        version: int,
        view: torch.Tensor | None = None,
        leaf: torch.Tensor | None = None,
    ) -> None:
        self._edge = edge
        self.device = device
        self.tensor = tensor
        self.version = version
        self.view = view
        self.leaf = leaf
        self.signature: tuple[str, ...] | None = None
        self.trusted: bool | None = None
        self.apart = False  # whether `vmap` takes an operation near y apart
        self.operations: int | None = None
        self.widest: int | None = None
        self.flow: tuple[tuple[Any, ...], Flow | None] | None = None  # of the last question
        self.program: tuple[tuple[Any, ...], Program | None] | None = None  # of the last question, too

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

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    @property
    def graph(self) -> Graph | None:
        return None

    def lift(self, tensor: torch.Tensor) -> Value:
        edge = compat.inner_edge(tensor)
        leaf = tensor if edge is None and tensor.requires_grad else None  # its edge is made when somebody needs it
        view = tensor if tensor._is_view() else None
        moment = Moment(edge, tensor.device, weakref.ref(tensor), tensor._version, view, leaf)
        return Value(self, moment, tuple(tensor.shape), tensor.dtype)

    def join(self, other: Any) -> Any:
        return other if isinstance(other, LiveRecord) else None  # a recording knows more than a live graph

    def side(self, value: Value, elements: Elements) -> Side:
        view = value.key.view
        otherwise = None if view is None else base_side(self.lift, view, elements)
        return Side(elements.shape, (Part(value, elements),), otherwise)

    def linear(self, y: Value, xs: Sequence[Value]) -> TorchLinear:
        return TorchLinear(y, xs)

    def row(self, y: Value, x: Value, position: int) -> torch.Tensor | None:
        """One row with respect to all of x, in x's own shape: the quickest question there is.

        None where more has to be looked at: complex numbers, a tensor without history, one tensor on both sides.
        """
        out, into = y.key.edge, x.key.target
        if out is None or into is None or y.dtype.is_complex or x.dtype.is_complex or _one_edge(out, into):
            return None
        return row(out, into, unit(y, position))

    def flow(self, y: Value, xs: Sequence[Value]) -> Flow | None:
        """The graph between y and x as plain data, for the planner: walked once for each question."""
        moment, ends = y.key, tuple([x.key for x in xs])
        if moment.flow is None or moment.flow[0] != ends:
            moment.flow = ends, cuts.flow(y, xs, self._at_edge)
        known: Flow | None = moment.flow[1]
        return known

    def follow(self, y: Value, trail: Sequence[int]) -> Value | None:
        """The tensor at the end of a way that led to one in an earlier graph of the same program."""
        found = cuts.follow(y, trail, self._at_edge)
        if found is not None and self.trusted(y):  # what led there led to y
            found.key.trusted, found.key.apart = True, y.key.apart
        return found

    def signature(self, y: Value) -> tuple[str, ...]:
        """What a plan for y may be remembered by."""
        moment = y.key
        if moment.signature is None:
            moment.signature = cuts.signature(y)
        known: tuple[str, ...] = moment.signature
        return known

    def overseen(self, y: Value) -> bool:
        """Whether the signature names every operation that led to y."""
        return len(self.signature(y)) < cuts.LOOKED_AT

    def few(self, y: Value) -> int | None:
        """How many operations led to y; None where they are many or heavy."""
        return cuts.few(self.signature(y))

    def counted(self, y: Value, most: int) -> int | None:
        """How many operations led to y, where they are up to so many and none is heavy."""
        return cuts.counted(y, most)

    def light(self, y: Value) -> bool:
        """Whether no heavy operation is near y."""
        return not cuts.HEAVY.intersection(self.signature(y))

    def sorts(self, y: Value) -> bool:
        """Whether elements near y were picked by an index: on a GPU, pulling these back sorts them first."""
        return cuts.PICKED in self.signature(y)

    def ends_in_a_product(self, y: Value) -> bool:
        """Whether y is a matrix product, whose matrix may be where its rows begin."""
        return cuts.ends_in_a_product(self.signature(y))

    def rows_at_once(self, y: Value) -> int:
        """How many rows a batch should have, by the widest tensor near y; as many as there are on a device."""
        return cuts.rows_at_once(y, self.widest(y)) if y.key.device.type == "cpu" else cuts.MOST_ROWS

    def widest(self, y: Value) -> int:
        """How many numbers the widest tensor near y has."""
        moment = y.key
        if moment.widest is None:
            moment.widest = cuts.widest(y)
        return int(moment.widest)

    def weights(self, y: Value, xs: Sequence[Value]) -> tuple[Value, torch.Tensor] | None:
        """Where y is a matrix times another Value: that Value, and the matrix as a batch of its cotangents."""
        return cuts.weights(y.key.edge.node, xs, self._at_edge)

    def trusted(self, y: Value, xs: Sequence[Value] = ()) -> bool:
        """Whether the batches of every operation that led to y are known to be right; or of those on the way from xs."""
        moment = y.key
        if moment.trusted is None:
            seen = moment.signature is not None and self.overseen(y)  # then a look at it tells, without a walk
            if not seen and xs and come_first(y) and program_of(y, xs) is not None:
                return True
            self._judge(y)
        return bool(moment.trusted) or (bool(xs) and program_of(y, xs) is not None)

    def _judge(self, y: Value) -> None:
        moment, names = y.key, self.signature(y)
        moment.apart = not TAKEN_APART.isdisjoint(names)
        if self.overseen(y):
            moment.trusted = TRUSTED.issuperset(names)
        else:
            moment.operations = trusted(y) or None
            moment.trusted = moment.operations is not None

    def operations(self, y: Value) -> int:
        """How many operations led to y: each of them rounds."""
        moment = y.key
        if moment.operations is None:
            moment.operations = len(self.signature(y)) if self.overseen(y) else cuts.operations(y)
        return int(moment.operations)

    def cone(self, y: Value, rows: Elements, x: Value, columns: Elements) -> Cone | None:
        """The patches of every layer between these rows and columns; None where the map is not known to be local."""
        return cone(y, rows, x, columns)

    def local_maps(self, y: Value, x: Value, *, certain: bool = False) -> LocalMaps | None:
        """Which elements meet in each operation between y and x; None where one is not known to be simple."""
        return local_maps(y, x, certain=certain)

    def hooked(self) -> bool:
        """Whether a hook of the user, on a tensor or on a node, may have a say in a gradient."""
        return may_act()

    def glance(self, y: Value) -> int | None:
        """How many operations led to y, where they are few and y is no product whose weights could be a start."""
        return cuts.glance(self.signature(y))

    def _at_edge(self, edge: GradientEdge) -> Value:
        metadata = edge.node._input_metadata[edge.output_nr]
        moment = Moment(edge, metadata.device, cuts.no_tensor(), -1)
        return Value(self, moment, tuple(metadata.shape), metadata.dtype)

    def same(self, y: Value, x: Value) -> bool:
        """Whether two Values are one tensor at one moment."""
        a, b = y.key, x.key
        if a.leaf is not None and b.leaf is not None:
            return a.leaf is b.leaf
        if b.leaf is not None and a._edge is not None and not compat.is_leaf_node(a._edge.node):
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
        """Raise where there is no history to differentiate."""
        if y.key.edge is None:
            raise _no_history(y, f"{_name(y, 'y')} does not require grad, so torch kept no history of it", y, x)
        side: Side | None = x
        while side is not None:
            if all(map(self.has_history, side.values)):
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
        if x.key.edge is not None and self._made_from(x, y):
            return True  # x is computed from y: graphs have no cycles, so y cannot depend on x
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


def _one_edge(a: GradientEdge, b: GradientEdge | torch.Tensor) -> bool:
    if type(b) is GradientEdge:
        return compat.same_edge(a, b)
    return compat.is_leaf_node(a.node) and a.node.variable is b


def _name(value: Value, letter: str) -> str:
    """What the user calls it."""
    return value.name or called(value.key.tensor(), letter)


def _no_history(value: Value, what: str, y: Value, x: Side) -> NotRecorded:
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
