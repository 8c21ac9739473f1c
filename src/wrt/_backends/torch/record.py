"""A recorded run of torch code: names, lines and versions, on top of the autograd graph it left behind."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from wrt._backends.torch import checkpoints, events, functions, modules
from wrt._backends.torch.buffers import Buffer, geometry, offsets_of
from wrt._backends.torch.evidence import TorchEvidence
from wrt._backends.torch.lines import operations_of_nodes
from wrt._backends.torch.listen import Listener
from wrt._backends.torch.live import LiveRecord, Moment
from wrt._backends.torch.plain_graph import plain_graph
from wrt._backends.torch.refusals import cut_error, left_error
from wrt._backends.torch.tensors import Entry
from wrt._backends.torch.twinning import twin_of
from wrt._core.bindings import Binding, Bindings
from wrt._core.dataflow import flow
from wrt._core.frame_names import visible_tensors
from wrt._core.graph import Graph, Write
from wrt._core.index import Elements
from wrt._core.value import Part, Side, Value
from wrt._core.watch import Watcher
from wrt._core.where import Where, place, user_frame
from wrt.errors import NotRecorded, WrongIndex


class TorchRecording(LiveRecord):
    """What one run left behind. Values are edges into the autograd graph, as for live tensors."""

    def __init__(self, backend: Any) -> None:
        super().__init__(backend)
        self.listener = Listener()
        self.events = events.Events(self.listener)
        self.names = Bindings()
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
        self._graph: Graph | None = None
        self._lines: tuple[int, dict[Any, int]] | None = None

    # ---------------------------------------------------------------- names

    def name(self, name: str, tensor: Tensor, frame: FrameType | None = None) -> None:
        """Bind a name that no variable has: a module path, a tap."""
        frame = user_frame(frame or sys._getframe(1))
        code, lasti = (frame.f_code, frame.f_lasti) if frame is not None else (_NOWHERE, 0)
        entry = self.listener.entry(tensor)
        self.names.add(Binding(name, entry, code, lasti, len(self.listener.operations)))

    def name_the_rest(self, frame: FrameType | None) -> None:
        """Names nobody bound during the run: variables from before it, and parameters by their paths."""
        named = {id(entry) for entry in self.names.objects()}
        known = self.listener.entries
        visible = [] if frame is None else [*visible_tensors(frame, _is_tensor).items()]
        for root in self.paths.roots():
            visible += [(modules.without_wrappers(path), tensor) for path, tensor in root.named_parameters()]
        with torch._C.DisableTorchFunction():
            for name, tensor in visible:
                entry = known.get(id(tensor))
                if entry is None or entry() is not tensor:
                    continue
                if id(entry) not in named or isinstance(tensor, torch.nn.Parameter):
                    self.name(name, tensor, frame)

    def bound(self, binding: Binding) -> Value:
        """The Value that a name stands for."""
        return replace(self.of_entry(binding.object), name=binding.name)

    # ---------------------------------------------------------------- finding Values

    def find(self, obj: Any) -> Value | None:
        if not isinstance(obj, Tensor):
            return None
        entry = self.listener.entries.get(id(obj))
        if entry is None or entry() is not obj:
            return None
        return self.of_entry(entry)

    def of_entry(self, entry: Entry) -> Value:
        """The Value a tensor of the run is now: after its last write."""
        tensor = entry()
        buffer = self.buffer_of(entry)
        if tensor is not None and tensor.requires_grad:
            edge = torch.autograd.graph.get_gradient_edge(tensor)
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
        if tensor is None or tensor.layout != torch.strided:
            return None
        base = tensor._base
        root = None if base is None else self.listener.entries.get(id(base))
        found = root.buffer if root is not None and root() is base else None
        return found if found is not None and found.writes else None

    def join(self, other: Any) -> Any:
        return self if isinstance(other, LiveRecord) else None  # all torch graphs are one graph

    # ---------------------------------------------------------------- meaning of elements

    def side(self, value: Value, elements: Elements) -> Side:
        entry: Any = getattr(value.key, "entry", None)
        buffer = None if entry is None else self.buffer_of(entry)
        if buffer is None:
            return super().side(value, elements)
        return self._by_owner(value, elements, entry, buffer)

    def _by_owner(self, value: Value, elements: Elements, entry: Entry, buffer: Buffer) -> Side:
        """Each element at the version that wrote it last."""
        offsets = offsets_of(_geometry(entry), elements.positions)
        owners = buffer.owners()[offsets]
        shape = tuple(buffer.base_geometry[0])
        parts = []
        for k in np.unique(owners):
            here = np.flatnonzero(owners == k)
            version = buffer.versions[int(k)]
            moment = RecordedMoment(version.edge, entry.device, entry, -1, None, None)
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

    # ---------------------------------------------------------------- no path

    def unreached(self, y: Value, x: Value) -> bool | Exception:
        ours = getattr(y.key, "entry", None), getattr(x.key, "entry", None)
        if ours[0] is None or ours[1] is None or self.graph is None:
            return super().unreached(y, x)
        followed = flow(self.graph, ours[0].number, ours[1].number)
        if followed.independent:
            return True
        names = (y.name or "y", x.name or "x")
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
            region = _region_words(touched, mine, tuple(entry.shape))
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
        found = self.names.of(entry)
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
        entry = getattr(value.key, "entry", None)
        return None if entry is None else entry.number

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
    """A moment of a recorded tensor: also knows the tensor's entry."""

    __slots__ = ("entry",)

    def __init__(self, edge: Any, device: Any, tensor: Any, version: int, view: Any, entry: Entry | None) -> None:
        super().__init__(edge, device, tensor, version, view)
        object.__setattr__(self, "entry", entry)


RECORDINGS: weakref.WeakSet[TorchRecording] = weakref.WeakSet()


def known(tensor: Tensor) -> Value | None:
    """The Value of a tensor in the latest recording that saw it."""
    for recording in sorted(RECORDINGS, key=lambda r: r.started, reverse=True):
        found = recording.find(tensor)
        if found is not None:
            return found
    return None


_KEPT: dict[int, tuple[TorchRecording, int]] = {}


def _keep_while_used(record: TorchRecording) -> None:
    """`with wrt.record():` without a name: the recording lives as long as a tensor that it saw made and named."""
    key = id(record)

    def gone(_: object) -> None:
        held, left = _KEPT.pop(key)
        if left > 1:
            _KEPT[key] = (held, left - 1)

    made = [entry for entry in record.names.objects() if entry.operation is not None]
    watched = [tensor for entry in made if (tensor := entry()) is not None]
    record.alive = [weakref.ref(tensor, gone) for tensor in watched]
    if watched:
        _KEPT[key] = (record, len(watched))


_COUNT = iter(range(1, 2**62))
_NOWHERE = compile("", "<module call>", "exec")


def tap(name: str, tensor: Tensor, frame: FrameType | None) -> None:
    """Name a tensor in every recording of this thread that is running."""
    for recording in RECORDINGS:
        if recording.running and recording.thread == threading.get_ident():
            with torch._C.DisableTorchFunction():
                recording.name(name, tensor, frame)


@contextmanager
def recording(backend: Any, *, values: bool = False) -> Iterator[TorchRecording]:
    """Record what the current thread does with torch tensors."""
    record = TorchRecording(backend)
    record.started = next(_COUNT)
    record.thread = threading.get_ident()
    outer = _running()
    if outer is not None:  # one listener a thread: an inner recording has names of its own and shares the rest
        record.listener, record.paths, record.events = outer.listener, outer.paths, outer.events
    listener = record.listener
    keep_before = listener.keep
    if values:
        listener.keep = record.kept if keep_before is None else keep_before
    record.kept = {} if listener.keep is None else listener.keep
    RECORDINGS.add(record)
    weakly = weakref.ref(record)  # the watcher outlives the block by a garbage collection; the recording must not

    def bound(binding: Binding) -> None:
        held = weakly()
        if held is not None:
            with torch._C.DisableTorchFunction():
                binding.object = held.listener.entry(binding.object)  # a stand-in: names keep no tensor alive
            held.names.add(binding)

    with ExitStack() as stack:
        if outer is None:
            _listen(stack, record)
        watched_before = sys.gettrace()
        stack.enter_context(Watcher(_is_tensor, bound))
        if outer is None:
            listener.tracer = sys.gettrace() if watched_before is None else None
        record.running = True
        try:
            yield record
        finally:
            record.running = False
            listener.keep = keep_before
            record.name_the_rest(user_frame(sys._getframe(1)))
            if outer is None:
                listener.let_go()
            _keep_while_used(record)


def _running() -> TorchRecording | None:
    """The recording that this thread is in."""
    here = [r for r in RECORDINGS if r.running and r.thread == threading.get_ident()]
    return max(here, key=lambda r: r.started) if here else None


def _listen(stack: ExitStack, record: TorchRecording) -> None:
    """Put everything in place that notes what happens; the stack takes it away again."""
    listener = record.listener
    stack.enter_context(torch.autograd.graph.saved_tensors_hooks(listener.saved.pack, listener.saved.unpack))
    if "torch._dynamo" in sys.modules:  # compiled code is one opaque node: run it eagerly
        stack.enter_context(torch.compiler.set_stance("force_eager"))
    stack.enter_context(modules.followed(record.paths, _enter(listener), _leave(record)))
    stack.enter_context(functions.followed(listener))
    stack.enter_context(events.followed(record.events))
    stack.enter_context(checkpoints.kept_open())
    stack.enter_context(listener)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _enter(listener: Listener) -> Callable[[str], None]:
    def enter(path: str) -> None:
        listener.module = path

    return enter


def _leave(record: TorchRecording) -> Callable[[str, list[Tensor], list[Tensor]], None]:
    """Names for what a module took and gave: `conv1`, `conv1.input`."""

    def leave(path: str, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        if not path:
            return
        with torch._C.DisableTorchFunction():
            for k, tensor in enumerate(inputs):
                record.name(f"{path}.input" if len(inputs) == 1 else f"{path}.input[{k}]", tensor)
            for k, tensor in enumerate(outputs):
                record.name(path if len(outputs) == 1 else f"{path}[{k}]", tensor)

    return leave


def _geometry(entry: Entry) -> Any:
    if entry.geometry is None:
        tensor = entry()
        if tensor is not None:
            entry.geometry = geometry(tensor)
        elif entry.buffer is not None:
            entry.geometry = entry.buffer.base_geometry
    return entry.geometry


def _region_words(touched: Any, mine: Any, shape: tuple[int, ...]) -> str:
    """`[3]`, `[0:4, 2]` or `7 of 12 elements`: where a write went, as an index where it is one."""
    if len(touched) == len(mine):
        return "[...]"
    order = np.argsort(mine, kind="stable")
    flat = order[np.searchsorted(mine[order], touched)]
    axes = [np.unique(c) for c in np.unravel_index(flat, shape)] if shape else []
    box = 1
    words = []
    for axis, length in zip(axes, shape, strict=True):
        box *= len(axis)
        words.append(_axis_words(axis, length))
    if not axes or box != len(flat) or None in words:
        return f"{len(touched)} of {len(mine)} elements"
    return f"[{', '.join(str(word) for word in words)}]"


def _axis_words(used: Any, length: int) -> str | None:
    if len(used) == length:
        return ":"
    if len(used) == 1:
        return str(int(used[0]))
    steps = np.diff(used)
    if np.any(steps != steps[0]):
        return None
    stop = int(used[-1]) + 1
    return f"{int(used[0])}:{stop}" + (f":{int(steps[0])}" if steps[0] != 1 else "")


def as_values(record: TorchRecording, tree: Any) -> Any:
    """The user's container with a Value in the place of every tensor."""

    def value(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return record.of_entry(record.listener.entry(leaf))
        return leaf

    return pytree.tree_map(value, tree)


def trace(
    backend: Any, f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], *, values: bool = False
) -> TorchRecording:
    """Run f once, for real, and remember the run."""
    if isinstance(f, torch.nn.Module):
        module: torch.nn.Module | None = f
    else:
        module = getattr(f, "__self__", None) if isinstance(getattr(f, "__self__", None), torch.nn.Module) else None
    with recording(backend, values=values) as record:
        if module is not None:
            record.paths.learn(module)
        output = f(*args, **kwargs)
    record.inputs = [as_values(record, arg) for arg in args]
    record.keywords = {key: as_values(record, arg) for key, arg in kwargs.items()}
    record.output = as_values(record, output)
    record.held = (args, kwargs, output)  # inputs and outputs stay alive as long as the recording
    return record
