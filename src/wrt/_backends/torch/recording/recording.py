"""What one recorded run of torch code left behind: names, lines and versions, on top of its autograd graph."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import FrameType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from wrt._backends.torch import compat, refusals
from wrt._backends.torch.evidence import TorchEvidence
from wrt._backends.torch.kinds import UNDIFFERENTIABLE_INPUTS
from wrt._backends.torch.live import LiveRecord, Moment
from wrt._backends.torch.recording.entries import Entry, edge_of
from wrt._backends.torch.recording.graph import operations_of_nodes, plain_graph
from wrt._backends.torch.recording.names import ModulePaths, without_wrappers
from wrt._backends.torch.recording.patching import Events
from wrt._backends.torch.recording.recorder import Recorder
from wrt._backends.torch.recording.shadows import shadow_of
from wrt._backends.torch.recording.writes import Buffer, describe_region, geometry, offsets_of, positions_of
from wrt._backends.torch.views import AFTERWARDS, in_base
from wrt._core.bindings import Binding, Bindings
from wrt._core.graph import Graph, Write, flow, upstream
from wrt._core.index import Elements
from wrt._core.value import Part, Side, Value
from wrt._core.where import Spot, Where, place, spot
from wrt._names.frame_names import visible_tensors
from wrt._names.peek import called
from wrt.errors import NoPath, NotRecorded, WrongIndex

_NOWHERE = compile("", "<module call>", "exec")


class TorchRecording(LiveRecord):
    """What one run left behind. Values are edges into the autograd graph, as for live tensors."""

    recorded = True

    def __init__(self, backend: Any) -> None:
        super().__init__(backend)
        self.recorder = Recorder()
        self.events = Events(self.recorder)
        self.bound_names = Bindings()
        self.paths = ModulePaths()
        self.inputs: list[Any] = []
        self.keywords: dict[str, Any] = {}
        self.output: Any = None
        self.started = 0
        self.thread = 0
        self.running = False
        self.held: Any = None
        self.versions: dict[Entry, int] = {}  # how often tensors with a name had been written when it ended
        self.alive: list[Any] = []
        self.kept: dict[int, Tensor] = {}
        self.spot: Spot | None = None
        self._parameters_named = False
        self._graph: Graph | None = None
        self._lines: tuple[int, dict[Any, int]] | None = None

    @property
    def changes(self) -> str:
        recorder = self.recorder
        if any(event.kind in ("backward", "step") for event in self.events.noted):
            return "it calls backward, or steps an optimizer"
        into = [recorder.values[new] for new, old in recorder.earlier.items() if recorder.values[old].operation is None]
        written = (recorder.operation(value.operation).name for value in into if value.operation is not None)
        return "" if all(name in UNDIFFERENTIABLE_INPUTS for name in written) else "it writes into what it is given"

    def map_tree(self, tree: Any, wrap: Callable[[Value], Any]) -> Any:
        return compat.tree_map(lambda leaf: wrap(leaf) if isinstance(leaf, Value) else leaf, tree)

    def open_loops(self, y: Value, x: Value) -> AbstractContextManager[None]:
        return nullcontext()  # loops of torch code are Python's, and written out already

    # ---------------------------------------------------------------- names

    @property
    def names(self) -> Bindings:
        """Variables, module paths and taps; parameters join when somebody asks, not while the run lasts."""
        if not self.running and not self._parameters_named:
            self._parameters_named = True
            for root in self.paths.roots():
                for path, tensor in root.named_parameters():
                    entry = self.recorder.entry_outside(tensor)  # one that no operation took is met now: it is a part of the run
                    self.bound_names.add(self._binding(without_wrappers(path), entry, self.spot))
        return self.bound_names

    def name(self, name: str, tensor: Tensor, frame: FrameType | None = None) -> None:
        """Bind a name that no variable has: a module path, a tap."""
        self.bound_names.add(self._binding(name, self.recorder.entry(tensor), spot(frame or sys._getframe(1))))

    def enter_module(self, module: torch.nn.Module) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            self.recorder.look_away()
        self.recorder.module = self.paths.enter(module)

    def leave_module(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        """Names for what a module took and gave: `conv1`, `conv1.input`."""
        if not self.paths.inside:
            return
        path = self.paths.leave(module)
        if path:
            with compat.without_function_modes():
                self._name_all(f"{path}.input", args)
                self._name_all(path, output)
        self.recorder.module = self.paths.inside[-1] if self.paths.inside else ""

    def _name_all(self, path: str, tree: Any) -> None:
        tensors = list(filter(is_tensor, compat.tree_leaves(tree)))
        for k, tensor in enumerate(tensors):
            self.name(path if len(tensors) == 1 else f"{path}[{k}]", tensor)

    def _binding(self, name: str, entry: Entry, at: Spot | None) -> Binding:
        return Binding(name, entry, *(at or (_NOWHERE, 0)), len(self.recorder.operations))

    def name_what_was_there(self, frame: FrameType | None) -> None:
        """Variables from before the run, which nobody bound while it lasted."""
        if frame is None:
            return
        self.spot = (frame.f_code, frame.f_lasti)
        named = {id(entry) for entry in self.bound_names.objects()}
        for name, tensor in visible_tensors(frame, is_tensor).items():
            entry = self.recorder.known(tensor)
            if entry is not None and id(entry) not in named:
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
        if isinstance(tensor, Parameter) and id(tensor) not in self.recorder.entries:
            _ = self.names
        return self.recorder.known(tensor)

    def own(self, value: Value) -> Value:
        """The same tensor in this run: one that several recordings met has a Value in each."""
        entry: Any = getattr(value.key, "entry", None)
        if entry is None or value.record is self:
            return value
        tensor = entry()
        return value if tensor is None else self.find(tensor) or value

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
        elif tensor is not None and entry.differentiable and not tensor.is_inference() and entry.shadow is None:
            with compat.without_function_modes(), torch.enable_grad():
                shadow_of(self.recorder, tensor, entry)
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
        return found[-1].name if (found := self.names.of(entry)) else ""

    def buffer_of(self, entry: Entry) -> Buffer | None:
        """The memory behind a tensor, if it was ever written in place."""
        tensor, buffer = entry(), entry.buffer
        if buffer is None and tensor is not None and tensor.layout == torch.strided:
            buffer = self.recorder.buffer_of_base(tensor)
        return buffer if buffer is not None and buffer.writes else None

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
            return side if entry.shadow is None else self._or_its_shadow(side, value, entry)
        return self._by_owner(value, elements, entry, buffer)

    def _or_its_base(self, side: Side, value: Value, elements: Elements) -> Side:
        """A view taken since the run of a tensor that it met means the elements of that one."""
        found = None if side.otherwise is not None else in_base(value.key.view, elements)
        known = None if found is None else self.known(found[0])
        if found is None or known is None:
            return side
        base = self.side(self.of_entry(known), found[1])
        return replace(side, otherwise=replace(base, notes=(*base.notes, AFTERWARDS)))

    def _or_its_shadow(self, side: Side, value: Value, entry: Entry) -> Side:
        """A leaf that requires grad only since the run is, in the run, its shadow."""
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
            picked = Elements.at(shape, _positions(buffer, offsets[here]))
            parts.append(Part(then, picked, here))
        if len(parts) == 1:
            only = parts[0]
            reshaped = Elements.at(shape, only.elements.positions.reshape(elements.shape))
            parts = [Part(only.value, reshaped, None)]
        return Side(elements.shape, tuple(parts), notes=self._write_notes(value, buffer, offsets))

    def _write_notes(self, value: Value, buffer: Buffer, offsets: Any) -> tuple[str, ...]:
        often = buffer.write_counts()[offsets]
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
        entry, version = self._entry(y), y.key.version
        if entry is not None and version >= 0 and not entry.requires_grad and self.versions.get(entry, version) != version:
            raise refusals.written_since(y.name or "y")
        try:
            super().ready(y, x)
        except NotRecorded:
            asked = x.parts[0].value
            if not hasattr(y.key, "entry") or hasattr(asked.key, "entry"):
                raise
            raise self._never_met(y, asked) from None

    def _open(self, y: Value, names: tuple[str, str]) -> NoPath | None:
        """The refusal where a part of what led to y was not seen."""
        graph = self.graph
        channel = graph and self.recorder.open_channel(graph, upstream(graph, y.key.entry.number))
        if not channel:
            return None
        return refusals.open_channel(*names, channel.words, place(*channel.spot) if channel.spot else None)

    def _never_met(self, y: Value, x: Value) -> NoPath:
        names = y.name or "y", x.name or called(x.key.tensor(), "x")
        return self._open(y, names) or refusals.never_met(*names)

    def _made_elsewhere(self, y: Value, x: Value) -> NoPath | None:
        """The refusal where y uses what another recording made of x; None where none that is still there did."""
        tensor, graph, backend = x.key.entry(), self.graph, cast(Any, self.backend)
        for number in () if tensor is None or graph is None else sorted(upstream(graph, y.key.entry.number)):
            given = self.recorder.values[number]
            made = given() if isinstance(given, Entry) and given.operation is None else None
            there = None if made is None or made.requires_grad else backend.recorded(made)
            if there is None or there.record is self or there.key.entry.operation is None:
                continue
            source = there.record.known(tensor)
            if source is not None and not flow(there.record.graph, there.key.entry.number, source.number).independent:
                return refusals.made_elsewhere(y.name or "y", x.name or "x", there.name or "a tensor")
        return None

    def unreached(self, y: Value, x: Value) -> bool | Exception:
        ours = self._entry(y), self._entry(x)
        if ours[0] is None or ours[1] is None or self.graph is None:
            verdict = super().unreached(y, x)
            return self._never_met(y, x) if type(verdict) is NoPath and ours[0] is not None else verdict
        if self.recorder.watchful and (tensor := ours[0]()) is not None:
            self.recorder.entry_outside(tensor)  # its memory may have been written since
        graph, names = self.graph, (y.name or "y", x.name or "x")
        assert graph is not None
        followed = flow(graph, ours[0].number, ours[1].number)
        if followed.independent:
            return self._open(y, names) or self._made_elsewhere(y, x) or True
        if followed.cuts:
            return refusals.cut_error(followed.cuts[0], *names)
        if followed.left and not followed.reaches:
            return refusals.left_error(followed.left[0], *names)
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
            region = describe_region(touched, mine, tuple(entry.shape))
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
        positions = _positions(buffer, offsets_of(_geometry(entry)))
        return then, Elements.at(shape, positions.reshape(value.shape))

    # ---------------------------------------------------------------- places and plain data

    def where(self, value: Value) -> Where | None:
        entry = getattr(value.key, "entry", None)
        if entry is None:
            return None
        operation = entry.operation
        if operation is not None:
            spot = self.recorder.operation(operation).spot
            return place(*spot) if spot else None
        return self.bound_at(entry.number)

    def bound_at(self, number: int) -> Where | None:
        """The line that first gave a tensor of the graph a name."""
        found = self.names.of(self.recorder.values[number])
        return found[0].where if found else None

    def line_of(self, made: Any) -> Where | None:
        if isinstance(made, Tensor):
            found = self.find(made)
            return None if found is None else self.where(found)
        if self._lines is None or self._lines[0] != len(self.recorder.operations):
            self._lines = (len(self.recorder.operations), operations_of_nodes(self.recorder))
        operation = self._lines[1].get(made)
        spot = None if operation is None else self.recorder.operation(operation).spot
        return place(*spot) if spot else None

    @property
    def graph(self) -> Graph | None:
        if self._graph is None or len(self._graph.nodes) != len(self.recorder.operations):
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
        super().__init__(edge, None, device)
        self.tensor, self.version, self.view = tensor, version, view
        self.entry = entry
        self.number = number


def _positions(buffer: Buffer, offsets: Any) -> Any:
    """Places in its memory as flat positions of the tensor that stands for all of it."""
    found = positions_of(buffer.base_geometry, offsets)
    assert found is not None
    return found


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
