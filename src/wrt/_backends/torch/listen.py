"""Listening to a run: every torch function the user's code calls, with its inputs, outputs, line and writes.

The hot path of a recording. An operation costs a few microseconds: numbers are noted, nothing is analyzed, no tensor is
kept alive. What the notes mean is worked out when somebody asks.
"""

from __future__ import annotations

import sys
import weakref
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from wrt._backends.torch import compat, twins
from wrt._backends.torch.buffers import Buffer, geometry, pattern_of
from wrt._backends.torch.kinds import (
    KINKED,
    PLAIN,
    REFUSALS,
    REMEMBERED,
    UNDIFFERENTIABLE_INPUTS,
    VERBATIM,
    name_of,
    writes_in_place,
)
from wrt._backends.torch.saved import Saved
from wrt._backends.torch.tensors import Entry, swapped, tensors_in
from wrt._core.where import Spot, user_files

Tensor = torch.Tensor
NOTHING: dict[str, Any] = {}


class Made(NamedTuple):
    """One value of the run that was overwritten since; the latest value of a tensor is noted by its entry."""

    shape: Any
    dtype: torch.dtype
    node: Any
    output: int
    operation: int | None
    requires_grad: bool


class Operation(NamedTuple):
    """One call: what, from which values to which, in which line, with gradients on (`off` is None) or off.

    While recording these are noted as bare tuples, in this order; `Listener.operation(k)` reads one.
    """

    name: str
    func: Any
    inputs: list[int]
    outputs: list[int]
    spot: Spot | None
    off: tuple[str, str] | None  # gradients were off: how, and the library function the user's line had called
    module: str
    written: tuple[tuple[Buffer, int, int], ...]


class Listener(TorchFunctionMode):
    """Notes what the thread that entered it does with tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[Entry | Made] = []
        self.operations: list[tuple[Any, ...]] = []
        self.entries: dict[int, Entry] = {}
        self.buffers: weakref.WeakValueDictionary[int, Buffer] = weakref.WeakValueDictionary()
        self.written: dict[int, Buffer] = {}  # memory that was written in place; kept as long as the recording
        self.saved = Saved(self.operations)
        self.earlier: dict[int, int] = {}  # a value of a tensor -> the value it had before it was written
        self.flags: list[tuple[int, int, bool]] = []  # operation, value, requires_grad from then on
        self.kept: dict[int, tuple[Any, Any, Any]] = {}  # operation -> function and arguments, to be run again
        self.module = ""
        self.tracer: Any = None  # the trace function that watches names, if nobody else's stands behind it
        self.keep: dict[int, Tensor] | None = None  # every value itself, where the user asked for values

    # ---------------------------------------------------------------- the hot path

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in PLAIN:
            return func(*args, **kwargs) if kwargs else func(*args)
        tracer = self.tracer
        if tracer is None or sys.gettrace() is not tracer:
            return self.perform(func, args, kwargs or NOTHING, sys._getframe(1))
        sys.settrace(None)  # names are bound in the user's frames; ours would only be slowed down by the watch
        try:
            return self.perform(func, args, kwargs or NOTHING, sys._getframe(1))
        finally:
            sys.settrace(tracer)

    def perform(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType | None) -> Any:
        """Run one function of the user's, for real, and note it."""
        name = name_of(func)
        given = tensors_in(args, kwargs)
        entries = []
        known = self.entries
        refresh = self.written
        for tensor in given:
            entry = known.get(id(tensor))
            if entry is None or entry() is not tensor:
                entry = self._meet(tensor, None)
            elif refresh:
                self._refresh(tensor, entry)
            entries.append(entry)
        enabled = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        plain = False
        replaced: Any = None
        if enabled and name not in VERBATIM:
            plain, replaced = self._twins(given, entries)
        if writes_in_place(func) or (kwargs and (kwargs.get("out") is not None or kwargs.get("inplace"))):
            for tensor in _targets(name, args, kwargs):
                self.saved.before_write(tensor)
        versions = [tensor._version for tensor in given] if enabled else _versions(given)
        if replaced:
            result = self._run_on_twins(func, name, args, kwargs, replaced)
            result = self._handed_back(result, given, replaced, plain)
        else:
            result = func(*args, **kwargs)
        inputs = [entry.number for entry in entries]
        spot = _spot(frame)
        written: Any = ()
        for k, tensor in enumerate(given):
            if versions[k] >= 0 and tensor._version != versions[k]:
                written = self._wrote_all(name, args, kwargs, given, versions, entries, plain, enabled, spot)
                break
        if isinstance(result, Tensor):
            entry = known.get(id(result))
            if entry is None or entry() is not result:
                entry = self._meet(result, len(self.operations))
            elif entry.operation is None and entry not in entries:
                entry.met_inside(result, len(self.operations))
            outputs = [entry.number]
        else:
            outputs = self._outputs(result, entries)
        if written:
            outputs += [number for _, number, _ in written if number not in outputs]
        if name in REMEMBERED:
            self._remember(name, func, args, kwargs, entries, outputs)
        off = None if enabled else _off(frame)
        self.operations.append((name, func, inputs, outputs, spot, off, self.module, written))
        return result

    def _remember(
        self, name: str, func: Any, args: Any, kwargs: Any, entries: list[Entry], outputs: list[int]
    ) -> None:
        """What `why` will need and nothing else tells: changed flags, numbers under a kink."""
        number = len(self.operations)
        if name in KINKED:
            self.kept[number] = (func, self.saved.boxed(args), self.saved.boxed(kwargs))
            return
        tensor = entries[0]() if entries else None
        if tensor is None:
            return
        if name in ("detach_", "data="):  # another value, although no version counter says so
            entries[0].shadow = entries[0].buffer = None
            self._renumber(tensor, entries[0], number)
            outputs[:] = [entries[0].number]
        else:
            self.flags.append((number, entries[0].number, tensor.requires_grad))

    # ---------------------------------------------------------------- tensors and values

    def operation(self, number: int) -> Operation:
        return Operation(*self.operations[number])

    def entry(self, tensor: Tensor) -> Entry:
        """What is known of a tensor; a tensor seen for the first time becomes an input of the run."""
        entry = self.entries.get(id(tensor))
        if entry is not None and entry() is tensor:
            if self.written:
                self._refresh(tensor, entry)
            return entry
        return self._meet(tensor, None)

    def _meet(self, tensor: Tensor, operation: int | None) -> Entry:
        values = self.values
        entry = Entry(tensor, len(values), operation)
        self.entries[id(tensor)] = entry
        values.append(entry)
        if self.written:
            self._refresh(tensor, entry)
        if self.keep is not None:
            self.keep[entry.number] = tensor.detach().clone()
        return entry

    def _refresh(self, tensor: Tensor, entry: Entry) -> None:
        """A tensor whose memory was written through another one has a new value."""
        buffer = self.written.get(_memory(tensor)) if tensor.layout == torch.strided else None
        if buffer is None:
            return
        if entry.buffer is not buffer:
            entry.buffer = buffer
            if entry.number >= buffer.versions[-1].number:
                entry.stamp = buffer.writes  # made after the last write
        if entry.stamp != buffer.writes:
            since = [entry.number, *(version.number for version in buffer.versions[entry.stamp + 1 :])]
            self._renumber(tensor, entry, len(self.operations))
            last = buffer.versions[-1].spot
            self.operations.append(("alias", None, since, [entry.number], last, None, self.module, ()))
            entry.stamp = buffer.writes

    def _renumber(self, tensor: Tensor, entry: Entry, operation: int) -> None:
        """A new value of the same tensor object."""
        self.values[entry.number] = Made(
            entry.shape, entry.dtype, entry.node, entry.output, entry.operation, entry.requires_grad
        )
        self.earlier[len(self.values)] = entry.number
        entry.number, entry.operation, entry.requires_grad = len(self.values), operation, tensor.requires_grad
        holder = entry.shadow if entry.shadow is not None else tensor
        entry.node, entry.output = holder.grad_fn, holder.output_nr
        self.values.append(entry)
        if self.keep is not None:
            self.keep[entry.number] = tensor.detach().clone()

    def _outputs(self, result: Any, given: list[Entry]) -> list[int]:
        if not isinstance(result, (tuple, list)):
            return []
        found = []
        for item in result:
            if isinstance(item, Tensor):
                entry = self.entries.get(id(item))
                if entry is None or entry() is not item:
                    entry = self._meet(item, len(self.operations))
                elif entry.operation is None and entry not in given:
                    entry.met_inside(item, len(self.operations))
                found.append(entry.number)
        return found

    # ---------------------------------------------------------------- twins

    def _twins(self, given: list[Tensor], entries: list[Entry]) -> tuple[bool, dict[int, Tensor] | None]:
        """Whether the user's own graph records this call, and the twins of what it does not record."""
        plain = False
        replaced: dict[int, Tensor] | None = None
        for tensor, entry in zip(given, entries):  # noqa: B905 - the hot path
            if tensor.requires_grad:
                plain = True
                continue
            twin = entry.shadow
            if twin is None or self.written:
                if not entry.followed or tensor.is_inference() or tensor.layout != torch.strided:
                    continue
                twin = self.twin(tensor, entry)
                if entry.buffer is not None and entry.buffer.adopted:
                    twins.adopt(tensor, twin)  # a view of a buffer that joined the user's graph
                    entry.shadow = None
                    plain = True
                    continue
            if replaced is None:
                replaced = {}
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
            buffer.owner = weakref.ref(base)
            self.buffers[memory] = buffer
        whole = geometry(tensor) == buffer.base_geometry and tensor.dtype == buffer.base.dtype
        twin = buffer.base if whole else _view_like(buffer.base, tensor)
        if twin is None:
            twin = twins.enter(tensor)  # the same bytes as another dtype: a source of its own
        entry.shadow, entry.buffer = twin, buffer
        if entry.node is None:
            entry.node, entry.output = twin.grad_fn, twin.output_nr
        return twin

    def _run_on_twins(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], replaced: dict[int, Tensor]
    ) -> Any:
        """The user's call, on twins; on the plain tensors where torch refuses those."""
        if name in UNDIFFERENTIABLE_INPUTS:
            first = args[0] if args else kwargs["input"]
            twin = replaced.get(id(first))
            replaced.clear()
            if twin is not None:
                replaced[id(first)] = twin
        run = [swapped(arg, replaced) for arg in args]
        named = {key: swapped(arg, replaced) for key, arg in kwargs.items()} if kwargs else NOTHING
        out = named.get("out")
        try:
            if isinstance(out, Tensor):  # autograd has no out=; the same numbers by a copy
                result = func(*run, **{key: arg for key, arg in named.items() if key != "out"})
                if isinstance(result, Tensor) and result.shape == out.shape:
                    return out.copy_(result)
                raise RuntimeError(REFUSALS[0])
            return func(*run, **named)
        except RuntimeError as refusal:
            if not any(words in str(refusal) for words in REFUSALS):
                raise
            replaced.clear()
            return func(*args, **kwargs)

    def _handed_back(self, result: Any, given: list[Tensor], replaced: dict[int, Tensor], plain: bool) -> Any:
        """What the user gets: their own tensors instead of twins, plain aliases instead of unasked-for graphs."""
        own = {id(replaced[id(tensor)]): tensor for tensor in given if id(tensor) in replaced}

        def back(tensor: Tensor) -> Tensor:
            if id(tensor) in own:
                return own[id(tensor)]
            if plain or not tensor.requires_grad:
                return tensor
            memory = _memory(tensor)
            buffer = self.buffers.get(memory)
            alias = _own_view(tensor, buffer)
            entry = self._meet(alias, len(self.operations))
            entry.shadow, entry.node, entry.output = tensor, tensor.grad_fn, tensor.output_nr
            if buffer is None:
                buffer = Buffer(tensor)
                buffer.owner = weakref.ref(alias)
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

    def let_go(self) -> None:
        """The run is over: hold no tensor of the user's any more."""
        for buffer in self.written.values():
            if buffer.adopted:
                buffer.base = None

    def _wrote_all(
        self,
        name: str,
        args: Any,
        kwargs: Any,
        given: list[Tensor],
        versions: list[int],
        entries: list[Entry],
        plain: bool,
        enabled: bool,
        spot: Spot | None,
    ) -> tuple[tuple[Buffer, int, int], ...]:
        """Note the writes of one call. Views share a version counter: of several on one memory only the target changed."""
        changed = {id(t): k for k, t in enumerate(given) if versions[k] >= 0 and t._version != versions[k]}
        out = tensors_in((), {"out": kwargs.get("out")})
        seen: set[int] = set()
        noted = []
        for tensor in [*out, *given]:
            memory = _memory(tensor) if id(tensor) in changed else 0
            if memory and memory not in seen:
                seen.add(memory)
                entry = entries[changed[id(tensor)]]
                noted.append(self._wrote(name, args, kwargs, tensor, entry, plain, enabled, spot))
        return tuple(noted)

    def _wrote(
        self, name: str, args: Any, kwargs: Any, tensor: Tensor, entry: Entry, plain: bool, enabled: bool, spot: Spot | None
    ) -> tuple[Buffer, int, int]:
        """Note that a tensor was written in place, and which version of its memory this made."""
        memory = _memory(tensor)
        buffer = self.buffers.get(memory)
        if entry.shadow is not None and plain and not tensor.requires_grad:
            whole = tensor if tensor._base is None else tensor._base
            twins.adopt(whole, entry.shadow if whole is tensor else buffer.base)
            entry.shadow = None
        if tensor.requires_grad:
            base = tensor._base if tensor._base is not None else tensor
            if buffer is None:
                before = self.entries.get(id(base))
                known = before is not None and before() is base
                buffer = Buffer(base, before.edge() if before is not None and known else None)
                self.buffers[memory] = buffer
            if not buffer.adopted:
                buffer.base, buffer.adopted = base, True
        elif buffer is None:
            buffer = Buffer(tensor)
            self.buffers[memory] = buffer
        if not enabled:
            entry.shadow = None  # its numbers are no longer what its history says
        self.written[memory] = buffer
        self._renumber(tensor, entry, len(self.operations))
        edge = compat.edge_of(buffer.base) if enabled else None
        buffer.wrote(edge, geometry(tensor), name, pattern_of(name, args, kwargs), spot, entry.number)
        entry.buffer, entry.stamp = buffer, buffer.writes
        return buffer, entry.number, buffer.writes


def _memory(tensor: Tensor) -> int:
    memory: int = tensor.untyped_storage()._cdata
    return memory


def _versions(given: list[Tensor]) -> list[int]:
    return [-1 if tensor.is_inference() else tensor._version for tensor in given]


def _targets(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Tensors that a call may write into: what is under out=, running statistics, or the first argument."""
    out = kwargs.get("out")
    if out is not None:
        given = tensors_in((), {"out": out})
    elif name in UNDIFFERENTIABLE_INPUTS:
        given = tensors_in(args[1:5], kwargs)
    elif name in ("embedding", "embedding_bag"):
        given = tensors_in(args[1:2], {"weight": kwargs.get("weight")}) if len(args) > 3 or kwargs.get("max_norm") else []
    else:
        given = tensors_in(args[:1], NOTHING)
    return [tensor for tensor in given if tensor.layout == torch.strided]


def _own_view(twin: Tensor, buffer: Buffer | None) -> Tensor:
    """What the user gets for a twin: a view of their own tensor where torch would give one, else a plain alias."""
    owner = None if buffer is None or buffer.owner is None else buffer.owner()
    if owner is None or twin._base is None or owner.dtype != twin.dtype or owner.requires_grad:
        return twin.detach()
    return owner.as_strided(twin.size(), twin.stride(), twin.storage_offset())


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


def _off(frame: FrameType | None) -> tuple[str, str]:
    """How gradients are switched off, and which library function the user's line had called."""
    called = ""
    while frame is not None and not user_files[frame.f_code.co_filename]:
        called = f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}"
        frame = frame.f_back
    return ("inference_mode" if torch.is_inference_mode_enabled() else "no_grad"), called
