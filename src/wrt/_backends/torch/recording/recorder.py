"""The recorder: a function mode that notes every torch function the user's code calls, with its inputs, outputs, line and writes.

The hot path of a recording. An operation costs a few microseconds: numbers are noted, nothing is analyzed, no tensor is
kept alive. What the notes mean is worked out when somebody asks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from wrt._backends.torch.compat import memory_of, print_of, transform, without_function_modes
from wrt._backends.torch.kinds import EXPOSING, KINKED, PLAIN_QUESTION, REBOUND, REMEMBERED, STORAGE, TRAITS, TURNED, Traits
from wrt._backends.torch.kinds import UNDIFFERENTIABLE_INPUTS as NORMS
from wrt._backends.torch.recording.entries import Entry, entry_in_graph, new_entry, node_of, tensors_in
from wrt._backends.torch.recording.saved import Saved
from wrt._backends.torch.recording.shadows import hand_back, reshape_in_place, run_on_shadows, shadows_for
from wrt._backends.torch.recording.writes import (
    Buffer,
    Call,
    Written,
    note_write_behind,
    note_writes,
    prepare_write,
    running_statistics,
)
from wrt._core.graph import Graph
from wrt._core.where import Spot, user_files
from wrt._core.where import spot as spot_of

NOTHING: dict[str, Any] = {}
STRIDED = torch.strided
ALIASES = ("data", "detach")
ABOUT_GRAD = frozenset(["grad", "grad="])
PASSED_ON = frozenset(["handle_torch_function", "_typed_storage", *STORAGE])
PICKLING = frozenset(["_reduce_ex_internal", "reduce_tensor", "reduce_storage"])
Off: TypeAlias = tuple[str, tuple[CodeType, ...]]


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

    While recording these are noted as bare tuples, see `Recorder.note`; `Recorder.operation(k)` reads one.
    """

    name: str
    func: Any
    inputs: list[int]
    outputs: list[int]
    spot: Spot | None
    off: Off | None  # gradients were off: how, and the library functions on the way here
    module: str
    written: tuple[Written, ...]


class Unseen(NamedTuple):
    """Code that ran where nobody looked: the channel in words (none: code that torch runs by itself), and its line."""

    words: str
    spot: Spot | None
    before: dict[int, tuple[Any, int]] | None
    """The tensors that were there, and how often they had been written; None: only those that were met are known."""


class Recorder(TorchFunctionMode):
    """Notes what the thread that entered it does with tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[Entry | Made] = []
        self.operations: list[tuple[Any, ...]] = []
        self.entries: dict[int, Entry] = {}
        self.written: list[Buffer] = []  # what was written in place; kept as long as the recording
        self.saved = Saved(self)
        self.earlier: dict[int, int] = {}  # a value of a tensor -> the value it had before it was written
        self.flags: list[tuple[int, int, bool]] = []  # operation, value, requires_grad from then on
        self.kept: dict[int, tuple[Any, Any, Any]] = {}  # operation -> function and arguments, to be run again
        self.module = ""  # the path of the module that is being called
        self.tracer: Any = None  # the trace function that watches names, if nobody else's stands behind it
        self.keep: dict[int, Tensor] | None = None  # every value itself, where the user asked for values
        self.unseen: list[Unseen] = []
        self.open: dict[int, Unseen] = {}  # values that may have been made where nobody looked
        self.exposed: dict[int, list[Any]] = {}  # memory that was handed out -> itself, its fingerprint, where
        self.touched: dict[int, tuple[int, int, Buffer]] = {}  # memory -> operation, value, buffer of its latest write
        self.backwards: list[int] = []  # what the user's backward calls began at
        self.watchful = False  # memory was written or handed out: values may change where they lie
        self.users = 0  # recordings that are running and note here
        self.aliases: dict[Entry, Entry] = {}  # what `.data` or `.detach()` gave -> the tensor on whose memory it lies

    # ---------------------------------------------------------------- the hot path

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        traits = TRAITS[func]
        if traits is PLAIN_QUESTION:
            return func(*args, **kwargs) if kwargs else func(*args)
        if transform() is not None:
            self.look_away()
            return func(*args, **kwargs) if kwargs else func(*args)
        frame = sys._getframe(1)
        if traits.verbatim and is_ignored(traits.name, frame):
            return func(*args, **kwargs) if kwargs else func(*args)
        tracer = self.tracer
        watched = tracer is not None and sys.gettrace() is tracer
        if watched:
            sys.settrace(None)  # names are bound in the user's frames; ours would only be slowed down by the watch
        try:
            if traits.quick and not kwargs and not self.watchful and self.keep is None:
                return self._quickly(traits, func, args, frame)
            return self.perform(func, traits, args, kwargs or NOTHING, frame)
        finally:
            if watched:
                sys.settrace(tracer)

    def _quickly(self, traits: Traits, func: Any, args: tuple[Any, ...], frame: FrameType) -> Any:
        """The common case: all tensors are known, the user's own graph records the call, and nothing can be written.

        No shadow can come back as the result: it comes with a tensor of the graph, and what those two make is new.
        """
        known = self.entries
        given: Any = args
        inputs: tuple[int, ...] = ()
        in_graph = False
        for place, arg in enumerate(args):
            kind = type(arg)
            if kind is Tensor or kind is Parameter:
                follows = arg.requires_grad
                entry = known.get(id(arg))
                if entry is None or entry() is not arg:
                    if not follows:
                        return self.perform(func, traits, args, NOTHING, frame)
                    entry = self.meet(arg, None)
                inputs += (entry.number,)
                if follows:
                    in_graph = True
                elif entry.shadow is not None:
                    if given is args:
                        given = [*args]
                    given[place] = entry.shadow
                else:
                    return self.perform(func, traits, args, NOTHING, frame)
            elif kind is list or kind is tuple or isinstance(arg, Tensor):
                return self.perform(func, traits, args, NOTHING, frame)
        if not in_graph or not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return self.perform(func, traits, args, NOTHING, frame)
        result = func(*given)
        operations = self.operations
        if type(result) is Tensor:
            node = result.grad_fn
            entry = known.get(id(result))
            if node is not None and (entry is None or entry() is not result) and result.layout is STRIDED:
                values = self.values
                number = len(values)
                known[id(result)] = entry = entry_in_graph(result, number, len(operations), node)
                values.append(entry)
                code = frame.f_code
                if user_files[code.co_filename]:
                    operations.append((traits.name, func, inputs, number, code, frame.f_lasti, None, self.module, ()))
                else:
                    self.note(traits.name, func, inputs, number, spot_of(frame))
                return result
        self._note_others(traits.name, func, inputs, given, result, spot_of(frame))
        return result

    def _note_others(
        self, name: str, func: Any, inputs: Sequence[int], given: Sequence[Any], result: Any, spot: Spot | None
    ) -> None:
        """A quick call that gave several tensors, one of those it took, or something else."""
        entries = [e for arg in given if isinstance(arg, Tensor) and (e := self.entries.get(id(arg))) is not None]
        outputs = self._outputs(result if isinstance(result, (tuple, list)) else (result,), entries)
        self.note(name, func, inputs, outputs, spot)

    def perform(self, func: Any, traits: Traits, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType | None) -> Any:
        """Run one function of the user's, for real, and note it."""
        name, verbatim, writes, pure, remembered, _ = traits
        given = tensors_in(args, kwargs)
        entries = [self.entry(tensor) for tensor in given]
        enabled = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        if name in TURNED and not given[0].requires_grad:
            return reshape_in_place(self, func, name, args, kwargs, entries[0], frame)
        run, plain = func, False
        replaced: Any = None
        if enabled and not verbatim:
            plain, replaced = shadows_for(self, name, given, entries, writes)
        if writes or (kwargs and (kwargs.get("out") is not None or kwargs.get("inplace"))):
            run = prepare_write(self, name, func, args, kwargs)
            pure = False
        versions = None if pure else _versions(given)
        if replaced:
            result = run_on_shadows(run, args, kwargs, replaced)
            result = hand_back(self, result, given, entries, replaced, plain)
        else:
            result = run(*args, **kwargs)
        inputs = [entry.number for entry in entries]
        if name == "grad":  # what a backward left there is computed from all that it began at
            inputs += self.backwards
        spot, off = (spot_of(frame), None) if enabled else _spot_and_off(frame)
        written: Any = ()
        if versions is not None and name not in REBOUND and versions != _versions(given):
            call = Call(name, args, kwargs, plain, enabled, spot)
            written = note_writes(self, call, given, versions, entries)
        outputs = self._outputs((result,) if isinstance(result, Tensor) else result, entries)
        if written:
            outputs += [number for _, number, _ in written if number not in outputs]
        if name in NORMS:
            outputs += [self.renumber_silently(tensor) for tensor in running_statistics(func, args, kwargs)]
        if remembered or self.keep is not None:
            self._remember(name, func, args, kwargs, entries, outputs)
        self.note(name, func, inputs, outputs, spot, off, written)
        if name in ALIASES and outputs:
            self._alias(outputs[0], entries[0])
        if written:
            self._touch(written, given)
            if self.aliases:
                self._note_write_behind([number for _, number, _ in written], spot, off)
        if name in EXPOSING and given and given[0].layout is STRIDED:
            self.watchful = True
            self.exposed[memory_of(given[0])] = [given[0].untyped_storage(), print_of(given[0]), spot]
        return result

    def _touch(self, written: tuple[Written, ...], given: list[Tensor]) -> None:
        """Whoever lies on memory that was written has other numbers, also if he is no view that torch knows of."""
        self.watchful = True
        for buffer, number, _ in written:
            entry = self.values[number]
            tensor = entry() if isinstance(entry, Entry) else None
            if tensor is not None:
                self.touched[memory_of(tensor)] = len(self.operations) - 1, number, buffer
        for tensor in given if self.exposed else ():
            if tensor.layout is STRIDED and (known := self.exposed.get(memory_of(tensor))) is not None:
                known[1] = print_of(tensor)

    def _alias(self, number: int, owner: Entry) -> None:
        made, tensor = self.values[number], owner()
        if isinstance(made, Entry) and made is not owner:
            owner = (None if tensor is None else self.known(tensor._base)) or owner  # a view may be gone before it is written
            self.aliases[made] = self.aliases.get(owner, owner)

    def _note_write_behind(self, written: list[int], spot: Spot | None, off: Off | None) -> None:
        """`v.data.copy_(p)` gives v other numbers, and autograd no reason to think so."""
        for number in written:
            entry = self.values[number]
            tensor = entry() if isinstance(entry, Entry) else None
            base = None if tensor is None else self.known(tensor._base)
            owner = self.aliases.get(entry) or self.aliases.get(base)  # type: ignore[arg-type]
            if owner is not None and (behind := owner()) is not None:
                self._behind("data=", behind, owner, [number], spot, off)

    def _behind(
        self, name: str, tensor: Tensor, entry: Entry, source: list[int], spot: Spot | None, off: Off | None = None
    ) -> None:  # fmt: skip
        """Note that a tensor has other numbers, which autograd does not know."""
        before = entry.number
        noted = note_write_behind(self, tensor, entry, spot)
        self.note(name, None, [before, *source], [entry.number], spot, off, (noted,))

    def renumber_silently(self, tensor: Tensor) -> int:
        """The number of a value that changed although no version counter says so."""
        entry = self.entry(tensor)
        self.renumber(tensor, entry, len(self.operations))
        return entry.number

    def note(
        self,
        name: str,
        func: Any,
        inputs: Sequence[int],
        outputs: list[int] | int,
        spot: Spot | None,
        off: Off | None = None,
        written: Any = (),
    ) -> None:
        """One operation more."""
        code, offset = spot or (None, 0)
        self.operations.append((name, func, inputs, outputs, code, offset, off, self.module, written))

    def _remember(self, name: str, func: Any, args: Any, kwargs: Any, entries: list[Entry], outputs: list[int]) -> None:
        """What `why` will need and nothing else tells: changed flags, numbers under a kink."""
        number = len(self.operations)
        if name in KINKED or self.keep is not None:
            self.kept[number] = (func, self.saved.box(args), self.saved.box(kwargs))
        if name not in REMEMBERED or name in KINKED:
            return
        tensor = entries[0]() if entries else None
        if tensor is None:
            return
        if name in REBOUND:  # another value, although no version counter says so
            entries[0].shadow = entries[0].buffer = None
            self.renumber(tensor, entries[0], number)
            outputs[:] = [entries[0].number]
        else:
            self.flags.append((number, entries[0].number, tensor.requires_grad))
            if tensor.requires_grad and tensor.is_leaf:  # from here on gradients enter at the tensor itself, not at its shadow
                entries[0].node, entries[0].output = None, 0
                entries[0].shadow = entries[0].buffer = None

    def look_away(self, words: str = "", spot: Spot | None = None, before: Any = None) -> None:
        """What runs now is not seen: tensors met from here on may come from there."""
        if not self.unseen or (words and self.unseen[-1].words != words):
            self.unseen.append(Unseen(words, spot, before))

    def open_channel(self, graph: Graph, needed: set[int]) -> Unseen | None:
        """How numbers may have come into these values unseen; None where every one of them was seen being made."""
        if self.open and (unmade := needed.intersection(self.open)):
            unmade.difference_update(k for node in graph.nodes for k in node.outputs)
            if unmade:
                return self.open[min(unmade)]
        outside = [node.id for node in graph.nodes if node.op == "outside" and needed.intersection(node.outputs)]
        return Unseen("hands out memory, which was written", self.operation(outside[0]).spot, None) if outside else None

    # ---------------------------------------------------------------- tensors and values

    def operation(self, number: int) -> Operation:
        name, func, inputs, outputs, code, offset, off, module, written = self.operations[number]
        spot = None if code is None else (code, offset)
        made = [outputs] if isinstance(outputs, int) else outputs
        return Operation(name, func, list(inputs), made, spot, off, module, written)

    def nodes_of(self, operation: int) -> list[Any]:
        """The autograd nodes of the results of an operation."""
        outputs = self.operations[operation][3]
        numbers = [outputs] if isinstance(outputs, int) else outputs
        return [node for number in numbers if (node := self.values[number].node) is not None]

    def nodes_from_before(self, since: int) -> list[Any]:
        """The autograd nodes of what was made before the recording, among the values from this one on."""
        return [value.node for value in self.values[since:] if value.operation is None and value.node is not None]

    def known(self, tensor: Tensor | None) -> Entry | None:
        """The entry of a tensor that was met before; numbers of objects are given out again, so it has to be this one."""
        entry = self.entries.get(id(tensor))
        return entry if entry is not None and entry() is tensor else None

    def entry(self, tensor: Tensor) -> Entry:
        """What is known of a tensor; a tensor seen for the first time becomes an input of the run."""
        entry = self.entries.get(id(tensor))
        if entry is None or entry() is not tensor:
            return self.meet(tensor, None)
        if self.watchful:
            self._refresh(tensor, entry)
        return entry

    def entry_outside(self, tensor: Tensor) -> Entry:
        """The entry of a tensor that a variable was bound to, from outside of any call."""
        with without_function_modes():
            return self.entry(tensor)

    def meet(self, tensor: Tensor, operation: int | None) -> Entry:
        values = self.values
        entry = new_entry(tensor, len(values), operation)
        self.entries[id(tensor)] = entry
        values.append(entry)
        if self.written:
            entry.buffer = buffer = self.buffer_of_base(tensor)
            entry.stamp = 0 if buffer is None else buffer.writes  # made after all writes so far
        if self.keep is not None:
            self.keep[entry.number] = tensor.detach().clone()
        if operation is None:
            if self.unseen:
                before = self.unseen[0].before
                known = None if before is None else before.get(id(tensor))
                if known is None or known[0]() is not tensor or known[1] != _versions([tensor])[0]:
                    self.open[entry.number] = self.unseen[-1]
            if self.touched:
                self._refresh(tensor, entry)
        return entry

    def _refresh(self, tensor: Tensor, entry: Entry) -> None:
        """A tensor whose memory was written through another one, or by somebody else, has a new value."""
        memory = memory_of(tensor) if tensor.layout is STRIDED else 0
        operation, number, buffer = self.touched.get(memory, (-1, -1, None))
        made = -1 if entry.operation is None else entry.operation
        if operation > made and buffer is not entry.buffer and buffer is not self.buffer_of_base(tensor):
            self._behind("data=", tensor, entry, [number], self.operation(operation).spot)
        exposed = self.exposed.get(memory)
        if exposed is not None and (now := print_of(tensor)) != exposed[1]:
            exposed[1] = now
            self._behind("outside", tensor, entry, [], exposed[2])
        if entry.buffer is None:
            entry.buffer = self.buffer_of_base(tensor)
        buffer = entry.buffer
        if buffer is not None and entry.stamp != buffer.writes:
            since = [entry.number, *(version.number for version in buffer.versions[entry.stamp + 1 :])]
            self.renumber(tensor, entry, len(self.operations))
            self.note("alias", None, since, [entry.number], buffer.versions[-1].spot)
            entry.stamp = buffer.writes

    def buffer_of_base(self, tensor: Tensor) -> Buffer | None:
        base = tensor._base
        if base is None or (tensor.requires_grad and tensor.is_leaf):  # a leaf has no history but its own
            return None
        known = self.known(base)
        return None if known is None else known.buffer

    def renumber(self, tensor: Tensor, entry: Entry, operation: int) -> None:
        """A new value of the same tensor object."""
        self.values[entry.number] = Made(entry.shape, entry.dtype, entry.node, entry.output, entry.operation, entry.requires_grad)
        self.earlier[len(self.values)] = entry.number
        entry.number, entry.operation, entry.requires_grad = len(self.values), operation, tensor.requires_grad
        holder = entry.shadow if entry.shadow is not None else tensor
        entry.node, entry.output = node_of(holder), holder.output_nr
        entry.size, entry.kind = tensor.shape, tensor.dtype
        self.values.append(entry)
        if self.keep is not None:
            self.keep[entry.number] = tensor.detach().clone()

    def _outputs(self, result: Any, given: list[Entry]) -> list[int]:
        if not isinstance(result, (tuple, list)):
            return []
        found = []
        for item in result:
            if isinstance(item, Tensor):
                entry = self.known(item)
                if entry is None:
                    entry = self.meet(item, len(self.operations))
                elif entry.operation is None and entry not in given:
                    entry.place(item, len(self.operations))
                found.append(entry.number)
        return found

    def release(self) -> None:
        """The run is over: hold no tensor of the user's any more."""
        for known in self.exposed.values():
            known[0] = None
        for buffer in self.written:
            if buffer.adopted:
                buffer.base = None


def _versions(given: list[Tensor]) -> list[int]:
    try:
        return [tensor._version for tensor in given]
    except RuntimeError:  # inference tensors have no version
        return [-1 if tensor.is_inference() else tensor._version for tensor in given]


def _spot_and_off(frame: FrameType | None) -> tuple[Spot | None, Off]:
    """Also how gradients are switched off, and the library functions between the user's line and here, innermost first."""
    called = []
    while frame is not None and not user_files[frame.f_code.co_filename]:
        called.append(frame.f_code)
        frame = frame.f_back
    spot = None if frame is None else (frame.f_code, frame.f_lasti)
    return spot, ("inference_mode" if torch.is_inference_mode_enabled() else "no_grad", tuple(called))


def is_ignored(name: str, frame: FrameType) -> bool:
    """Whether a call that only library code makes is not noted, for it reads no number that goes on.

    An optimizer at work, whose steps are events, or a look at whose memory it is; pickle, copy.copy and torch.save, which take
    all numbers along, are noted.
    """
    if user_files[frame.f_code.co_filename]:
        return False
    if name not in STORAGE:
        return name in ABOUT_GRAD
    asks: FrameType | None = frame
    while asks is not None and asks.f_code.co_name in PASSED_ON and not user_files[asks.f_code.co_filename]:
        asks = asks.f_back
    return asks is None or not (user_files[asks.f_code.co_filename] or asks.f_code.co_name in PICKLING)
