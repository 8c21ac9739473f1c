"""Listening to a run: every torch function the user's code calls, with its inputs, outputs, line and writes.

The hot path of a recording. An operation costs a few microseconds: numbers are noted, nothing is analyzed, no tensor is
kept alive. What the notes mean is worked out when somebody asks.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from wrt._backends.torch import twins
from wrt._backends.torch.buffers import Buffer, geometry, pattern_of
from wrt._backends.torch.kinds import PLAIN, VERBATIM, name_of, writes_in_place
from wrt._backends.torch.saved import Saved
from wrt._backends.torch.tensors import Entry, swapped, tensors_in
from wrt._core.where import Spot, user_files

Tensor = torch.Tensor
NOTHING: dict[str, Any] = {}


class Made(NamedTuple):
    """One value of the run: shape, dtype, where its gradient enters the graph, the operation that made it."""

    shape: Any
    dtype: torch.dtype
    node: Any
    output: int
    operation: int | None
    requires_grad: bool


class Operation(NamedTuple):
    """One call: what, from which values to which, in which line, with gradients on or off."""

    name: str
    func: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    spot: Spot | None
    enabled: bool
    module: str
    written: tuple[tuple[Buffer, int], ...]
    notes: tuple[Any, ...]


class Listener(TorchFunctionMode):
    """Notes what the thread that entered it does with tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[Made] = []
        self.operations: list[Operation] = []
        self.entries: dict[int, Entry] = {}
        self.by_number: dict[int, Entry] = {}
        self.buffers: weakref.WeakValueDictionary[int, Buffer] = weakref.WeakValueDictionary()
        self.written: list[Buffer] = []
        self.saved = Saved()
        self.module = ""
        self.keep: list[Tensor] | None = None  # every value itself, where the user asked for values

    # ---------------------------------------------------------------- the hot path

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in PLAIN:
            return func(*args, **kwargs) if kwargs else func(*args)
        return self.perform(func, args, kwargs or NOTHING, sys._getframe(1))

    def perform(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType | None) -> Any:
        """Run one function of the user's, for real, and note it."""
        name = name_of(func)
        given = tensors_in(args, kwargs)
        entries = [self.entry(tensor) for tensor in given]
        enabled = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        plain = False
        replaced: dict[int, Tensor] = NOTHING  # type: ignore[assignment]
        if enabled and name not in VERBATIM:
            plain, replaced = self._twins(given, entries)
        if kwargs.get("out") is not None or writes_in_place(func) or kwargs.get("inplace"):
            for tensor in self._targets(args, kwargs):
                self.saved.before_write(tensor)
        versions = [-1 if tensor.is_inference() else tensor._version for tensor in given]
        if replaced:
            run = [swapped(arg, replaced) for arg in args]
            result = func(*run, **{key: swapped(arg, replaced) for key, arg in kwargs.items()})
            result = self._handed_back(result, given, entries, replaced, plain)
        else:
            result = func(*args, **kwargs)
        inputs = tuple([entry.number for entry in entries])
        spot = _spot(frame)
        written: tuple[tuple[Buffer, int], ...] = ()
        for k, tensor in enumerate(given):
            if versions[k] >= 0 and tensor._version != versions[k]:
                written += (self._wrote(name, args, kwargs, tensor, entries[k], plain and enabled, enabled, spot),)
        outputs = self._outputs(result)
        outputs += tuple([entries[k].number for k, t in enumerate(given) if versions[k] >= 0 and t._version != versions[k] and entries[k].number not in outputs])
        self.operations.append(Operation(name, func, inputs, outputs, spot, enabled, self.module, written, ()))
        return result

    # ---------------------------------------------------------------- tensors and values

    def entry(self, tensor: Tensor) -> Entry:
        """What is known of a tensor; a tensor seen for the first time becomes an input of the run."""
        entry = self.entries.get(id(tensor))
        if entry is not None and entry.ref() is tensor:
            if self.written:
                self._refresh(tensor, entry)
            return entry
        return self._meet(tensor, None)

    def _meet(self, tensor: Tensor, operation: int | None) -> Entry:
        number = len(self.values)
        entry = Entry(tensor, number)
        self.entries[id(tensor)] = entry
        self.values.append(Made(entry.shape, entry.dtype, entry.node, entry.output, operation, tensor.requires_grad))
        self.by_number[number] = entry
        if self.written:
            self._refresh(tensor, entry)
        if self.keep is not None:
            self.keep.append(tensor.detach().clone())
        return entry

    def _refresh(self, tensor: Tensor, entry: Entry) -> None:
        """A tensor whose memory was written through another one has a new value."""
        buffer = self.buffers.get(_memory(tensor)) if tensor.layout == torch.strided else None
        if buffer is None or not buffer.writes:
            return
        if entry.buffer is not buffer:
            entry.buffer = buffer
            if entry.number >= buffer.versions[-1].number:
                entry.stamp = buffer.writes  # made after the last write
        if entry.stamp != buffer.writes:
            since = tuple(version.number for version in buffer.versions[entry.stamp + 1 :])
            self._renumber(tensor, entry, len(self.operations))
            name = "alias"
            self.operations.append(
                Operation(name, None, since, (entry.number,), buffer.versions[-1].spot, True, self.module, (), ())
            )
            entry.stamp = buffer.writes

    def _renumber(self, tensor: Tensor, entry: Entry, operation: int) -> None:
        """A new value of the same tensor object."""
        old, entry.number = entry.number, len(self.values)
        shadow = entry.shadow if entry.shadow is not None else tensor
        entry.node, entry.output = shadow.grad_fn, shadow.output_nr
        self.values.append(
            Made(entry.shape, entry.dtype, entry.node, entry.output, operation, tensor.requires_grad)
        )
        self.by_number[entry.number] = entry
        self.by_number[old] = entry
        if self.keep is not None:
            self.keep.append(tensor.detach().clone())

    def _outputs(self, result: Any) -> tuple[int, ...]:
        if isinstance(result, Tensor):
            return (self._output(result),)
        if isinstance(result, (tuple, list)):
            return tuple([self._output(item) for item in result if isinstance(item, Tensor)])
        return ()

    def _output(self, tensor: Tensor) -> int:
        entry = self.entries.get(id(tensor))
        if entry is not None and entry.ref() is tensor:
            return entry.number
        return self._meet(tensor, len(self.operations)).number

    # ---------------------------------------------------------------- twins

    def _twins(self, given: list[Tensor], entries: list[Entry]) -> tuple[bool, dict[int, Tensor]]:
        """Whether the user's own graph records this call, and the twins of what it does not record."""
        plain = False
        replaced: dict[int, Tensor] = {}
        for tensor, entry in zip(given, entries, strict=True):
            if tensor.requires_grad:
                plain = True
            elif entry.followed and not tensor.is_inference() and tensor.layout == torch.strided:
                twin = self.twin(tensor, entry)
                if entry.buffer is not None and entry.buffer.adopted:
                    twins.adopt(tensor, twin)  # a view of a buffer that joined the user's graph
                    entry.shadow = None
                    plain = True
                else:
                    replaced[id(tensor)] = twin
        return plain, replaced

    def twin(self, tensor: Tensor, entry: Entry) -> Tensor:
        """The differentiable twin of a plain tensor, on the same memory."""
        memory = _memory(tensor)
        buffer = self.buffers.get(memory)
        if entry.shadow is not None and (buffer is None or entry.buffer is buffer):
            return entry.shadow
        if buffer is None:
            base = tensor if tensor._base is None or tensor._base.requires_grad else tensor._base
            buffer = Buffer(twins.enter(base))
            self.buffers[memory] = buffer
        whole = geometry(tensor) == buffer.base_geometry and tensor.dtype == buffer.base.dtype
        twin = buffer.base if whole else _view_like(buffer.base, tensor)
        if twin is None:
            twin = twins.enter(tensor)  # the same bytes as another dtype: a source of its own
        entry.shadow, entry.buffer = twin, buffer
        if entry.node is None:
            entry.node, entry.output = twin.grad_fn, twin.output_nr
            made = self.values[entry.number]
            self.values[entry.number] = made._replace(node=entry.node, output=entry.output)
        return twin

    def _handed_back(
        self, result: Any, given: list[Tensor], entries: list[Entry], replaced: dict[int, Tensor], plain: bool
    ) -> Any:
        """What the user gets: their own tensors instead of twins, plain aliases instead of unasked-for graphs."""
        own = {id(replaced[id(tensor)]): tensor for tensor in given if id(tensor) in replaced}

        def back(tensor: Tensor) -> Tensor:
            if id(tensor) in own:
                return own[id(tensor)]
            if plain or not tensor.requires_grad:
                return tensor
            alias = tensor.detach()
            entry = self._meet(alias, len(self.operations))
            entry.shadow, entry.node, entry.output = tensor, tensor.grad_fn, tensor.output_nr
            self.values[entry.number] = self.values[entry.number]._replace(node=entry.node, output=entry.output)
            memory = _memory(tensor)
            buffer = self.buffers.get(memory)
            if buffer is None:
                buffer = Buffer(tensor)
                self.buffers[memory] = buffer
            entry.buffer, entry.stamp = buffer, buffer.writes
            return alias

        if isinstance(result, Tensor):
            return back(result)
        if isinstance(result, (tuple, list)) and any(isinstance(item, Tensor) for item in result):
            items = [back(item) if isinstance(item, Tensor) else item for item in result]
            return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
        return result

    # ---------------------------------------------------------------- writes

    @staticmethod
    def _targets(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """Tensors that a call may write into."""
        out = kwargs.get("out")
        candidates = out if out is not None else args[:1]
        if isinstance(candidates, Tensor):
            return [candidates]
        found: list[Tensor] = []
        for item in candidates if not args or out is not None else args:
            if isinstance(item, Tensor):
                found.append(item)
            elif isinstance(item, (list, tuple)):
                found.extend(t for t in item if isinstance(t, Tensor))
        return [t for t in found if t.layout == torch.strided]

    def _wrote(
        self, name: str, args: Any, kwargs: Any, tensor: Tensor, entry: Entry, plain: bool, enabled: bool, spot: Spot | None
    ) -> tuple[Buffer, int]:
        """Note that a tensor was written in place, and which version of its memory this made."""
        memory = _memory(tensor)
        buffer = self.buffers.get(memory)
        if entry.shadow is not None and plain and not tensor.requires_grad:
            twins.adopt(tensor, entry.shadow)
            entry.shadow = None
        if tensor.requires_grad:
            base = tensor._base if tensor._base is not None else tensor
            if buffer is None:
                buffer = Buffer(base)
                made = self.values[entry.number] if base is tensor else None
                before = self.entries.get(id(base))
                if made is None and before is not None and before.ref() is base:
                    made = self.values[before.number]
                buffer.versions[0] = buffer.versions[0].__class__(
                    _edge(made), buffer.base_geometry, "", (), None, -1
                )
                self.buffers[memory] = buffer
            if not buffer.adopted:
                buffer.base, buffer.adopted = base, True
        elif buffer is None:
            buffer = Buffer(tensor)
            self.buffers[memory] = buffer
        if not enabled:
            entry.shadow = None  # its numbers are no longer what its history says
        if not buffer.writes:
            self.written.append(buffer)
        self._renumber(tensor, entry, len(self.operations))
        from wrt._backends.torch import compat

        edge = compat.edge_of(buffer.base) if enabled else None
        buffer.wrote(edge, geometry(tensor), name, pattern_of(name, args, kwargs), spot, entry.number)
        entry.buffer, entry.stamp = buffer, buffer.writes
        return buffer, buffer.writes

    # ---------------------------------------------------------------- notes that are no operations

    def note(self, name: str, inputs: tuple[int, ...] = (), notes: tuple[Any, ...] = (), frame: Any = None) -> None:
        """Something that happened between operations."""
        spot = _spot(frame if frame is not None else sys._getframe(1))
        enabled = torch.is_grad_enabled()
        self.operations.append(Operation(name, None, inputs, (), spot, enabled, self.module, (), notes))


def _memory(tensor: Tensor) -> int:
    memory: int = tensor.untyped_storage()._cdata
    return memory


def _edge(made: Made | None) -> Any:
    from torch.autograd.graph import GradientEdge

    return None if made is None or made.node is None else GradientEdge(made.node, made.output)


def _view_like(base: Tensor, tensor: Tensor) -> Tensor | None:
    """The same window on the memory of the base, as a differentiable view."""
    if base.dtype != tensor.dtype:
        return None
    return base.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _spot(frame: FrameType | None) -> Spot | None:
    known = user_files
    while frame is not None:
        code = frame.f_code
        if known[code.co_filename]:
            return code, frame.f_lasti
        frame = frame.f_back
    return None


Runner = Callable[..., Any]
