"""What a function mode does not see: functions of torch that are replaced while any thread records, and what they note.

They are replaced once for the whole process, by functions that ask whether their own thread records: recordings of several
threads may begin and end in any order. The last one puts everything back.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import wraps
from types import CodeType, FrameType
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from wrt._backends.torch import compat
from wrt._backends.torch.kinds import TRAITS, Traits
from wrt._backends.torch.recording.entries import is_shadow_source
from wrt._backends.torch.recording.recorder import Recorder, Unseen
from wrt._core.evidence import Event, LostHistory
from wrt._core.finding import Finding
from wrt._core.where import place, spot, user_files
from wrt.errors import EngineRefused

_RECORDING: dict[int, Any] = {}  # by thread, the outermost recording
_LOCK = threading.Lock()
_UNDO: list[Callable[[], object]] = []


def current() -> Any:
    """The recording of this thread; None where it has none."""
    return _RECORDING.get(threading.get_ident())


def begin(recording: Any) -> None:
    """This thread records from here on."""
    with _LOCK:
        if not _RECORDING:
            try:
                for patch in PATCHES:
                    patch()
            except BaseException:
                _put_back()
                raise
        _RECORDING[threading.get_ident()] = recording


def end(recording: Any) -> None:
    """It does not any more; the last one puts everything back."""
    with _LOCK:
        for thread, its in list(_RECORDING.items()):
            if its.recorder is recording.recorder:
                del _RECORDING[thread]
        if not _RECORDING:
            _put_back()


def _put_back() -> None:
    while _UNDO:
        _UNDO.pop()()


def _replace(owner: Any, name: str, new: Any) -> None:
    """Put a function in the place of another until the last recording ends."""
    if name in vars(owner):
        before = vars(owner)[name]
        _UNDO.append(lambda: setattr(owner, name, before))
    else:
        _UNDO.append(lambda: delattr(owner, name))
    setattr(owner, name, new)


# ---------------------------------------------------------------- operations that bypass function modes

MECHANISMS = ("wrt._backends.torch.recording.entries", "torch.utils.checkpoint")
"""Modules whose Functions belong to a mechanism, not to the user's computation."""


def custom_functions() -> None:
    """Note every custom Function that a recording thread applies, as one operation of its class's name.

    Many keep `apply` under a name of their own, `swish = Swish.apply`, from before the recording: what is replaced is not that
    method but the next one, which it calls in turn.
    """
    below: Any = compat.BELOW_FUNCTION

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        run = super(below, cls).apply
        recording = current()
        if recording is None or not compat.in_function_mode() or cls.__module__ in MECHANISMS:
            return run(*args, **kwargs)

        def call(*given: Any, **named: Any) -> Any:
            try:
                return run(*given, **named)
            except Exception:  # some refuse inputs that require grad (`ctx.needs_input_grad`); shadows do, the user's may not
                if all(one is own for one, own in zip((*given, *named.values()), (*args, *kwargs.values()))):
                    raise
                return run(*args, **kwargs)

        call.__name__ = cls.__name__
        recorder = recording.recorder
        with compat.without_function_modes():  # neither what is inside it nor our own work is another operation
            boxed = recorder.saved.box(args), recorder.saved.box(kwargs)
            result = recorder.perform(call, Traits(cls.__name__), args, kwargs, sys._getframe(2))
        recorder.kept[len(recorder.operations) - 1] = (cls, *boxed)  # to run it again beside its own backward
        return result

    _replace(below, "apply", classmethod(apply))


def tensors_set() -> None:
    """Note `tensor.set_(other)`, which no function mode sees either.

    Of tensors with numbers: those without, by which torch plans its work on sharded models, are set all the time.
    """
    traits = TRAITS[torch.Tensor.set_]

    def set_(self: Any, *args: Any, **kwargs: Any) -> Any:
        run, recording = super(torch.Tensor, self).set_, current()
        if recording is None or self.is_meta or not compat.in_function_mode():
            return run(*args, **kwargs)

        def call(tensor: Any, *given: Any, **named: Any) -> Any:
            return run(*given, **named)

        with compat.without_function_modes():
            return recording.recorder.perform(call, traits, (self, *args), kwargs, sys._getframe(1))

    _replace(torch.Tensor, "set_", set_)


def parameters() -> None:
    """`nn.Parameter(t)` is another leaf, with the numbers of t."""
    original = torch.nn.Parameter.__new__

    def new(cls: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        made = original(cls, data, *args, **kwargs)
        recording = current()
        if recording is not None and isinstance(made, torch.Tensor) and isinstance(data, torch.Tensor):
            recording.events.wrap_parameter(data, made, sys._getframe(1))
        return made

    _replace(torch.nn.Parameter, "__new__", new)


# ---------------------------------------------------------------- code that nobody looks into, or that would hide its graph


def unrecorded_code() -> None:
    """Know when a recording thread calls a scripted function or gives work to another thread.

    They run as they would without a recording, on the user's own tensors. What depends on what inside is known to autograd alone,
    for tensors that require grad: of all others nothing may be concluded from not having seen them used.
    """
    for owner, name in ((torch.jit.ScriptFunction, "__call__"), (threading.Thread, "start"), (ThreadPoolExecutor, "submit")):
        _replace(owner, name, _looking_away(getattr(owner, name)))
    _replace(torch.jit, "trace", _unrecorded(torch.jit.trace))
    _replace(torch.utils, "swap_tensors", _refuse_swap)
    hooks: Any = torch.autograd.graph.saved_tensors_hooks
    _replace(hooks, "__enter__", _looking_away(hooks.__enter__, "saved_tensors_hooks hands tensors to Python"))


def _unrecorded(original: Any) -> Any:
    """`torch.jit.trace` compares two runs of a function node by node, and must not meet the nodes of a recording."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current() is None:
            return original(*args, **kwargs)
        with compat.without_function_modes():
            return original(*args, **kwargs)

    return call


def _refuse_swap(first: Any, second: Any) -> None:
    raise EngineRefused(
        "torch.utils.swap_tensors inside of a recording",
        "the recording refers to both tensors, and torch swaps only what nobody refers to",
        "swap them before the recording; for a model, convert or load it first",
    )


def _looking_away(original: Any, words: str = "") -> Any:
    @wraps(original)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        recording, frame = current(), sys._getframe(1)
        if recording is not None and not (words and _is_wrt(frame)):
            recording.recorder.look_away(words, spot(frame) if words else None, compat.tensors_there() if words else None)
        return original(self, *args, **kwargs)

    return call


def _is_wrt(frame: FrameType) -> bool:
    return any(name.startswith("wrt.") for name, _ in _library_frames(frame))


def tensors_from_elsewhere() -> None:
    """What comes by DLPack lies on memory of somebody else, perhaps of a tensor of the run."""
    original = torch._C._from_dlpack

    def from_dlpack(capsule: Any) -> Any:
        made, recording = original(capsule), current()
        if recording is not None:
            with compat.without_function_modes():
                entry = recording.recorder.entry(made)
            recording.recorder.open[entry.number] = Unseen("DLPack hands on memory", spot(sys._getframe(1)), None)
        return made

    _replace(torch._C, "_from_dlpack", from_dlpack)


def checkpoints() -> None:
    """Activation checkpoints of recording threads keep their graph.

    A checkpoint recomputes its block in every backward, from the tensors it was given, and insists that the recomputation saves
    just what the first run saved. The first run of a recording is on shadows, the recomputation would not be; and it would run
    the user's code once more for every question.
    """
    module: Any = sys.modules.get("torch.utils.checkpoint")
    original = getattr(module, compat.CHECKPOINT_CALL, None)
    if original is not None:
        plain = lambda *args, **kwargs: original(*args, **kwargs) if current() is None else nullcontext()
        _replace(module, compat.CHECKPOINT_CALL, plain)


def compiled_code() -> None:
    """Compiled code is one opaque node: run it eagerly."""
    if "torch._dynamo" in sys.modules:
        stance: Any = torch.compiler.set_stance("force_eager")
        stance.__enter__()
        _UNDO.append(lambda: stance.__exit__(None, None, None))


# ---------------------------------------------------------------- modules, optimizers, backward calls


def module_calls() -> None:
    """Tell a recording before and after every module call of its thread."""

    def before(module: torch.nn.Module, args: Any) -> None:
        recording = current()
        if recording is not None:
            recording.enter_module(module)

    def after(module: torch.nn.Module, args: Any, output: Any) -> None:
        recording = current()
        if recording is not None:
            recording.leave_module(module, args, output)

    for handle in (register_module_forward_pre_hook(before), register_module_forward_hook(after)):
        _UNDO.append(handle.remove)


MODULE_HOOKS = ("register_full_backward_hook", "register_full_backward_pre_hook", "register_backward_hook")


def module_hooks() -> None:
    """Hooks that modules will put into the graph when they are called: remember who asked for them.

    By the handle that every registration makes: to replace methods of `nn.Module` itself, with its hundreds of
    subclasses, would cost as much as ten operations.
    """
    handles: Any = torch.utils.hooks.RemovableHandle
    original = handles.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        frame = sys._getframe(1)
        if frame.f_code.co_name in MODULE_HOOKS and (recording := current()) is not None:
            recording.events.note("module_hook", frame)

    _replace(handles, "__init__", made)


def backward_calls() -> None:
    """Stand in front of the one call through which every backward of the user's goes.

    It keeps its graph, because `why` will want to walk it; a second backward through it is refused, as torch does.
    """
    original: Any = getattr(torch.autograd, compat.ENGINE_CALL)

    def run(roots: Any, seeds: Any, retain: Any, create: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        recording = current()
        if recording is None or _is_ours(frame):
            return original(roots, seeds, retain, create, inputs, *args, **kwargs)
        with compat.without_function_modes():
            leaves = recording.events.backward(roots, bool(retain), inputs, bool(kwargs.get("accumulate_grad")), frame)
            note_gradients = recording.events.begin_gradients((*roots, *seeds), leaves, frame)
        try:
            result = original(roots, seeds, True, create, inputs, *args, **kwargs)
            note_gradients()
            return result
        except RuntimeError as error:
            values = recording.events.noted[-1].values
            if compat.Words.NO_HISTORY in str(error) and values:
                lost = LostHistory(recording.evidence, values[0], recording.bound_at)
                error.without_history = lost  # type: ignore[attr-defined]  # for `why(error)`
            raise

    _replace(torch.autograd, compat.ENGINE_CALL, run)


def optimizers() -> None:
    """Optimizers that are built, stepped, or asked to reset gradients."""
    base = torch.optim.Optimizer

    def note(optimizer: Any, kind: str, frame: FrameType) -> None:
        recording = current()
        if recording is not None:
            recording.events.optimizer(optimizer, kind, frame)

    def noting(original: Any, kind: str) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            note(self, kind, sys._getframe(1))

        return call

    _replace(base, "__init__", noting(base.__init__, "optimizer"))
    _replace(base, "zero_grad", noting(base.zero_grad, "zero_grad"))
    step = lambda optimizer, args, kwargs: note(optimizer, "step", sys._getframe(1))
    _UNDO.append(register_optimizer_step_post_hook(step).remove)


PATCHES: list[Callable[[], None]] = [
    custom_functions, tensors_set, parameters, unrecorded_code, tensors_from_elsewhere, checkpoints, compiled_code,
    module_calls, module_hooks, backward_calls, optimizers,
]


class Events:
    """State that changes beside the operations of one recording, in order: parameters, backward calls, optimizers.

    `freed` are autograd nodes that torch alone would have emptied.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.noted: list[Event] = []
        self.freed: dict[Any, Event] = {}
        self._on_shadows: set[Any] = set()
        self._looked = 0

    def note(self, kind: str, frame: FrameType | None, values: tuple[int, ...] = (), words: tuple[str, ...] = ()) -> Event:
        found = spot(frame)
        event = Event(kind, len(self.recorder.operations), place(*found) if found else None, values, words)
        self.noted.append(event)
        return event

    def wrap_parameter(self, data: torch.Tensor, parameter: torch.Tensor, frame: FrameType | None) -> None:
        """`nn.Parameter(data)` was made."""
        recorder = self.recorder
        with compat.without_function_modes():
            given, entry = recorder.entry(data).number, recorder.entry(parameter)
        if entry.operation is None:
            entry.operation = len(recorder.operations)
        copied = any(code.co_filename == copy.__file__ and code.co_name == "deepcopy" for _, code in _library_frames(frame))
        recorder.note("Parameter of a copy" if copied else "Parameter", None, [given], [entry.number], spot(frame))

    def backward(self, roots: Any, retain: bool, inputs: Any, accumulate: bool, frame: FrameType | None) -> list[Any]:
        """The user's backward is about to run; returns the leaves whose `.grad` it will fill."""
        reached = self._reach(roots)
        watched = (one() for one in self.recorder.entries.values())
        if any(compat.is_custom(node) and not is_shadow_source(node) for node in reached) or any(
            tensor is not None and (tensor._backward_hooks or compat.accumulate_hooks(tensor)) for tensor in watched
        ):  # Python code of the user's will see gradients, and may keep them
            self.recorder.look_away("a hook or a backward of yours sees gradients", spot(frame), compat.tensors_there())
        blocked = next((self.freed[node] for node in reached if node in self.freed), None)
        if blocked is not None:
            raise _freed(blocked)
        leaves = [node.variable for node in reached if compat.is_leaf_node(node)] if accumulate else []
        if accumulate and inputs:
            leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.is_leaf]
        full = [t for t in leaves if t.grad is not None and bool(t.grad.count_nonzero())]
        values = tuple(self.recorder.entry(root).number for root in roots if isinstance(root, torch.Tensor))
        words = ("adds", *(str(self.recorder.entry(t).number) for t in full)) if accumulate else ("asks",)
        event = self.note("backward", frame, values, words)
        if not retain:
            self.freed.update((node, event) for node in reached if compat.keeps_tensors(node))
        return leaves

    def begin_gradients(self, given: tuple[Any, ...], leaves: list[Any], frame: FrameType | None) -> Callable[[], None]:
        """A backward reads what it is given and writes gradients: to be called when it has."""
        recorder, outputs = self.recorder, list[int]()
        inputs = [recorder.entry(tensor).number for tensor in given if isinstance(tensor, torch.Tensor)]
        inputs += [entry.number for leaf in leaves if (entry := recorder.known(leaf.grad)) is not None]
        recorder.backwards += inputs
        at, first = len(recorder.operations), len(recorder.values)
        recorder.note("backward", None, inputs, outputs, spot(frame))

        def end() -> None:
            with compat.without_function_modes():
                outputs[:] = [k for k, value in enumerate(recorder.values[first:], first) if value.operation is None]
                for gradient in (leaf.grad for leaf in leaves if leaf.grad is not None):
                    known = recorder.known(gradient)
                    if known is None:
                        outputs.append(recorder.meet(gradient, at).number)
                    else:
                        recorder.renumber(gradient, known, at)
                        outputs.append(known.number)

        return end

    def _reach(self, roots: Any) -> set[Any]:
        """The nodes of the user's own graph behind these: what hangs on shadows would not be there without a recording."""
        values = self.recorder.values
        for value in values[self._looked :]:
            if value.node is not None and not value.requires_grad:
                self._on_shadows.add(value.node)
        self._looked = len(values)
        waiting = [node for root in roots if (node := compat.node_of(root)) is not None]
        reached = set(waiting)
        while waiting:
            for upstream, _ in waiting.pop().next_functions:
                if upstream is None or upstream in reached or upstream in self._on_shadows or is_shadow_source(upstream):
                    continue
                reached.add(upstream)
                waiting.append(upstream)
        return reached

    def optimizer(self, optimizer: Any, kind: str, frame: FrameType | None) -> None:
        """Built, stepped, or asked to reset gradients."""
        with compat.without_function_modes():
            parameters = [self.recorder.entry(p).number for group in optimizer.param_groups for p in group["params"]]
        self.note(kind, frame, tuple(parameters))


def _freed(by: Event) -> RuntimeError:
    """Torch's own error, which also knows the call that freed the graph."""
    error = RuntimeError(compat.Words.FREED_IN_FULL)
    sentence = "the graph was freed by this earlier backward"
    remedy = "compute it again, or pass retain_graph=True here"
    finding = Finding("graph_freed", sentence, by.where, True, compat.Words.FREED, remedy)
    error.finding = finding  # type: ignore[attr-defined]
    return error


def _is_ours(frame: FrameType | None) -> bool:
    """Whether wrt itself runs this backward: a question does, a recorder only passes on what the user called."""
    names = [name for name, _ in _library_frames(frame) if name.startswith("wrt._backends.torch.")]
    return any(not name.startswith("wrt._backends.torch.recording.") for name in names)


def _library_frames(frame: FrameType | None) -> Iterator[tuple[str, CodeType]]:
    """Modules and functions between here and the user's nearest line."""
    while frame is not None and not user_files[frame.f_code.co_filename]:
        yield frame.f_globals.get("__name__", ""), frame.f_code
        frame = frame.f_back
