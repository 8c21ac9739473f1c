"""What one recorded run of torch code left behind: names, lines and versions, on top of its autograd graph."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from wrt._backends.torch import compat, events, modules
from wrt._backends.torch.buffers import Buffer, geometry, offsets_of
from wrt._backends.torch.evidence import TorchEvidence
from wrt._backends.torch.lines import operations_of_nodes
from wrt._backends.torch.listen import Listener
from wrt._backends.torch.live import LiveRecord, Moment
from wrt._backends.torch.plain_graph import plain_graph
from wrt._backends.torch.refusals import cut_error, left_error
from wrt._backends.torch.regions import region_words
from wrt._backends.torch.tensors import Entry, edge_of
from wrt._backends.torch.twinning import twin_of
from wrt._backends.torch.unseen import brought_along, may_come_from_there, never_met, not_seen
from wrt._backends.torch.views import AFTERWARDS, in_base
from wrt._core.bindings import Binding, Bindings
from wrt._core.dataflow import flow, upstream
from wrt._core.graph import Graph, Write
from wrt._core.index import Elements
from wrt._core.value import Part, Side, Value
from wrt._core.where import Spot, Where, place, spot
from wrt._names.frame_names import visible_tensors
from wrt._names.spoken import called
from wrt.errors import NoPath, NotRecorded, WrongIndex

_NOWHERE = compile("", "<module call>", "exec")


class TorchRecording(LiveRecord):
    """What one run left behind. Values are edges into the autograd graph, as for live tensors."""

    def __init__(self, backend: Any) -> None:
        super().__init__(backend)
        self.listener = Listener()
        self.events = events.Events(self.listener)
        self.bound_names = Bindings()
        self.paths = modules.ModulePaths()
        self.inputs: list[Any] = []
        self.keywords: dict[str, Any] = {}
        self.output: Any = None
        self.started = 0
        self.thread = 0
        self.running = False
        self.held: Any = None
        self.alive: list[Any] = []
        self.kept: dict[int, Tensor] = {}
        self.spot: Spot | None = None
        self._parameters_named = False
        self._graph: Graph | None = None
        self._lines: tuple[int, dict[Any, int]] | None = None

    # ---------------------------------------------------------------- names

    @property
    def names(self) -> Bindings:
        """Variables, module paths and taps; parameters join when somebody asks, not while the run lasts."""
        if not self.running and not self._parameters_named:
            self._parameters_named = True
            for root in self.paths.roots():
                for path, tensor in root.named_parameters():
                    entry = self.listener.stand_in(tensor)  # one that no operation took is met now: it is a part of the run
                    self.bound_names.add(self._binding(modules.without_wrappers(path), entry, self.spot))
        return self.bound_names

    def name(self, name: str, tensor: Tensor, frame: FrameType | None = None) -> None:
        """Bind a name that no variable has: a module path, a tap."""
        self.bound_names.add(self._binding(name, self.listener.entry(tensor), spot(frame or sys._getframe(1))))

    def name_module(self, path: str, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Names for what a module took and gave: `conv1`, `conv1.input`."""
        with torch._C.DisableTorchFunction():
            for k, tensor in enumerate(inputs):
                self.name(f"{path}.input" if len(inputs) == 1 else f"{path}.input[{k}]", tensor)
            for k, tensor in enumerate(outputs):
                self.name(path if len(outputs) == 1 else f"{path}[{k}]", tensor)

    def _binding(self, name: str, entry: Entry, at: Spot | None) -> Binding:
        return Binding(name, entry, *(at or (_NOWHERE, 0)), len(self.listener.operations))

    def name_what_was_there(self, frame: FrameType | None) -> None:
        """Variables from before the run, which nobody bound while it lasted."""
        if frame is None:
            return
        self.spot = (frame.f_code, frame.f_lasti)
        named = {id(entry) for entry in self.bound_names.objects()}
        for name, tensor in visible_tensors(frame, is_tensor).items():
            entry = self.listener.entries.get(id(tensor))
            if entry is not None and entry() is tensor and id(entry) not in named:
                self.bound_names.add(self._binding(name, entry, self.spot))

    def bound(self, binding: Binding) -> Value:
        """The Value that a name stands for."""
        return replace(self.of_entry(binding.object), name=binding.name)

    # ---------------------------------------------------------------- finding Values

    def find(self, obj: Any) -> Value | None:
        entry = self.known(obj) if isinstance(obj, Tensor) else None
        return None if entry is None else self.of_entry(entry)

    def known(self, tensor: Tensor) -> Entry | None:
        """What the run noted of a tensor; the parameters of a module that was called belong to it, used or not."""
        entry = self.listener.entries.get(id(tensor))
        if entry is None and isinstance(tensor, Parameter) and self.names:
            entry = self.listener.entries.get(id(tensor))
        return entry if entry is not None and entry() is tensor else None

    def own(self, value: Value) -> Value:
        """The same tensor in this run: one that several recordings met has a Value in each."""
        entry: Any = getattr(value.key, "entry", None)
        if entry is None or value.record is self:
            return value
        tensor = entry()
        here = None if tensor is None else self.known(tensor)
        return value if here is None else self.of_entry(here)

    def _entry(self, value: Value) -> Entry | None:
        found: Entry | None = getattr(value.key, "entry", None) if value.record is self else None
        return found

    def of_entry(self, entry: Entry) -> Value:
        """The Value a tensor of the run is now: after its last write."""
        tensor = entry()
        buffer = self.buffer_of(entry)
        if tensor is not None and tensor.requires_grad:
            edge = edge_of(tensor)
        elif tensor is not None and entry.requires_grad and entry.node is None and tensor.is_leaf:
            edge = compat.edge_of_leaf(tensor)  # frozen since the run
        elif tensor is not None and entry.followed and not tensor.is_inference() and entry.shadow is None:
            with torch._C.DisableTorchFunction(), torch.enable_grad():
                twin_of(self.listener, tensor, entry)
            edge = entry.edge()
        elif entry.shadow is not None and buffer is not None and entry.stamp != buffer.writes:
            edge = torch.autograd.graph.get_gradient_edge(entry.shadow)
        else:
            edge = entry.edge()
        version = -1 if tensor is None or tensor.is_inference() else tensor._version
        view = tensor if tensor is not None and tensor._is_view() else None
        moment = RecordedMoment(edge, entry.device, entry, version, view, entry)
        return Value(self, moment, tuple(entry.shape), entry.dtype, self._name_of(entry))

    def _name_of(self, entry: Entry) -> str:
        found = self.names.of(entry)
        return found[-1].name if found else ""

    def buffer_of(self, entry: Entry) -> Buffer | None:
        """The memory behind a tensor, if it was ever written in place."""
        if entry.buffer is not None:
            return entry.buffer if entry.buffer.writes else None
        tensor = entry()
        if tensor is None or tensor.layout != torch.strided or (tensor.requires_grad and tensor.is_leaf):
            return None
        base = tensor._base
        root = None if base is None else self.listener.entries.get(id(base))
        found = root.buffer if root is not None and root() is base else None
        return found if found is not None and found.writes else None

    def join(self, other: Any) -> Any:
        return self if isinstance(other, LiveRecord) else None  # all torch graphs are one graph

    # ---------------------------------------------------------------- meaning of elements

    def side(self, value: Value, elements: Elements) -> Side:
        value = self.own(value)
        entry = self._entry(value)
        buffer = None if entry is None else self.buffer_of(entry)
        if entry is None or buffer is None:
            side = super().side(value, elements)
            if entry is None:
                return self._or_its_base(side, value, elements)
            return side if entry.shadow is None else self._or_its_twin(side, value, entry)
        return self._by_owner(value, elements, entry, buffer)

    def _or_its_base(self, side: Side, value: Value, elements: Elements) -> Side:
        """A view taken since the run of a tensor that it met means the elements of that one."""
        found = None if side.otherwise is not None else in_base(value.key.view, elements)
        known = None if found is None else self.known(found[0])
        if found is None or known is None:
            return side
        base = self.side(self.of_entry(known), found[1])
        return replace(side, otherwise=replace(base, notes=(*base.notes, AFTERWARDS)))

    def _or_its_twin(self, side: Side, value: Value, entry: Entry) -> Side:
        """A leaf that requires grad only since the run is, in the run, its twin."""
        tensor = entry()
        if side.otherwise is not None or tensor is None or not (tensor.requires_grad and tensor.is_leaf):
            return side
        then = replace(value, key=RecordedMoment(entry.edge(), entry.device, entry, -1, None, entry))
        return replace(side, otherwise=Side(side.shape, (replace(side.parts[0], value=then),)))

    def _by_owner(self, value: Value, elements: Elements, entry: Entry, buffer: Buffer) -> Side:
        """Each element at the version that wrote it last."""
        offsets = offsets_of(_geometry(entry), elements.positions)
        owners = buffer.owners()[offsets]
        shape = tuple(buffer.base_geometry[0])
        parts = []
        for k in np.unique(owners):
            here = np.flatnonzero(owners == k)
            version = buffer.versions[int(k)]
            number = version.number if tuple(version.geometry[0]) == shape else -1
            moment = RecordedMoment(version.edge, entry.device, entry, -1, None, None, number)
            then = Value(self, moment, shape, value.dtype, value.name)
            picked = Elements.at(shape, buffer.positions(offsets[here]))
            parts.append(Part(then, picked, here))
        if len(parts) == 1:
            only = parts[0]
            reshaped = Elements.at(shape, only.elements.positions.reshape(elements.shape))
            parts = [Part(only.value, reshaped, None)]
        return Side(elements.shape, tuple(parts), notes=self._write_notes(value, buffer, offsets))

    def _write_notes(self, value: Value, buffer: Buffer, offsets: Any) -> tuple[str, ...]:
        often = buffer.times_written()[offsets]
        if not np.any(often > 1):
            return ()
        count = int(np.sum(often > 1))
        return (
            f"{count} of the elements asked for were written more than once: this is about the last write; "
            f".at(k) asks about an earlier one",
        )

    def refuse_filled(self, value: Value) -> None:
        """Here every write has a number, and elements of one write were written together."""

    # ---------------------------------------------------------------- no path

    def ready(self, y: Value, x: Side) -> None:
        """As ever; to be told to record would not help whoever did, and left x out."""
        try:
            super().ready(y, x)
        except NotRecorded:
            asked = x.parts[0].value
            if not hasattr(y.key, "entry") or hasattr(asked.key, "entry"):
                raise
            raise self._never_met(y, asked) from None

    def _hidden(self, y: Value) -> bool:
        """Whether a part of what led to y was not seen."""
        graph = self.graph
        return graph is None or may_come_from_there(self.listener, graph, upstream(graph, y.key.entry.number))

    def _never_met(self, y: Value, x: Value) -> NoPath:
        words = not_seen if self._hidden(y) else never_met
        return words(y.name or "y", x.name or called(x.key.tensor(), "x"))

    def unreached(self, y: Value, x: Value) -> bool | Exception:
        ours = self._entry(y), self._entry(x)
        if ours[0] is None or ours[1] is None or self.graph is None:
            verdict = super().unreached(y, x)
            return self._never_met(y, x) if type(verdict) is NoPath and ours[0] is not None else verdict
        followed = flow(self.graph, ours[0].number, ours[1].number)
        names = (y.name or "y", x.name or "x")
        if followed.independent:
            return not_seen(*names) if self._hidden(y) else brought_along(self, y, x) or True
        if followed.cuts:
            return cut_error(followed.cuts[0], *names)
        if followed.left and not followed.reaches:
            return left_error(followed.left[0], *names)
        return super().unreached(y, x)

    # ---------------------------------------------------------------- writes

    def writes(self, value: Value) -> list[Write]:
        entry: Any = getattr(value.key, "entry", None)
        buffer = None if entry is None else self.buffer_of(entry)
        if buffer is None:
            return []
        mine = offsets_of(_geometry(entry))
        told = []
        for k in range(1, len(buffer.versions)):
            touched = np.intersect1d(mine, buffer.region(k))
            version = buffer.versions[k]
            region = region_words(touched, mine, tuple(entry.shape))
            where = place(*version.spot) if version.spot else None
            told.append(Write(entry.number, k, len(touched), region, where))
        return told

    def at(self, value: Value, k: int) -> tuple[Value, Elements]:
        entry: Any = getattr(value.key, "entry", None)
        buffer = None if entry is None else self.buffer_of(entry)
        if buffer is None:
            if k == 0:
                return value, Elements.all(value.shape)
            raise WrongIndex(f"there is no write {k} of this tensor", "it was never written in place", "write .at(0)")
        if not 0 <= k < len(buffer.versions):
            raise WrongIndex(
                f"there is no write {k} of this tensor",
                f"its memory was written {buffer.writes} times",
                f"write .at(0), before the first write, up to .at({buffer.writes})",
            )
        shape = tuple(buffer.base_geometry[0])
        moment = RecordedMoment(buffer.versions[k].edge, entry.device, entry, -1, None, None)
        then = Value(self, moment, shape, value.dtype, f"{value.name or 'tensor'}.at({k})")
        positions = buffer.positions(offsets_of(_geometry(entry)))
        return then, Elements.at(shape, positions.reshape(value.shape))

    # ---------------------------------------------------------------- places and plain data

    def where(self, value: Value) -> Where | None:
        entry = getattr(value.key, "entry", None)
        if entry is None:
            return None
        operation = entry.operation
        if operation is not None:
            spot = self.listener.operation(operation).spot
            return place(*spot) if spot else None
        return self.bound_at(entry.number)

    def bound_at(self, number: int) -> Where | None:
        """The line that first gave a tensor of the graph a name."""
        found = self.names.of(self.listener.values[number])
        return found[0].where if found else None

    def line_of(self, node: Any) -> Where | None:
        """The user's line that made an autograd node, or a tensor."""
        if isinstance(node, Tensor):
            found = self.find(node)
            return None if found is None else self.where(found)
        if self._lines is None or self._lines[0] != len(self.listener.operations):
            self._lines = (len(self.listener.operations), operations_of_nodes(self.listener))
        operation = self._lines[1].get(node)
        spot = None if operation is None else self.listener.operation(operation).spot
        return place(*spot) if spot else None

    @property
    def graph(self) -> Graph | None:
        if self._graph is None or len(self._graph.nodes) != len(self.listener.operations):
            self._graph = plain_graph(self)
        return self._graph

    def evidence(self) -> TorchEvidence:
        """The run under examination, for `why` and `check`."""
        return TorchEvidence(self)

    def numbered(self, value: Value) -> int | None:
        """Which tensor of the graph a Value is."""
        if value.record is not self:
            return None
        entry = self._entry(value)
        number: int = getattr(value.key, "number", -1) if entry is None else entry.number
        return None if number < 0 else number

    def value(self, value: Value) -> Any:
        entry = getattr(value.key, "entry", None)
        if entry is not None and entry.number in self.kept:
            return self.kept[entry.number]
        tensor = value.key.tensor()
        if tensor is None:
            raise NotRecorded(
                f"the numbers of {value.name or 'this tensor'} are gone",
                "a recording keeps the graph, not every tensor, unless asked to",
                "record with wrt.trace(f, x, values=True) or wrt.record(values=True)",
            )
        return tensor.detach()


class RecordedMoment(Moment):
    """A moment of a recorded tensor: also knows the tensor's entry; of an earlier write, its number in the graph."""

    __slots__ = ("entry", "number")

    def __init__(
        self, edge: Any, device: Any, tensor: Any, version: int, view: Any, entry: Entry | None, number: int = -1
    ) -> None:
        super().__init__(edge, device, tensor, version, view)
        self.entry = entry
        self.number = number


def _geometry(entry: Entry) -> Any:
    if entry.geometry is None:
        tensor = entry()
        if tensor is not None:
            entry.geometry = geometry(tensor)
        elif entry.buffer is not None:
            entry.geometry = entry.buffer.base_geometry
    return entry.geometry


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)
