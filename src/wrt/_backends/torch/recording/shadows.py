"""Running the user's calls on shadows of their tensors, and handing back what the user would have got without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wrt._backends.torch.compat import is_one_of_several, keep_version_counter
from wrt._backends.torch.kinds import REFUSALS, UNDIFFERENTIABLE_INPUTS
from wrt._backends.torch.recording.entries import Entry, new_shadow
from wrt._backends.torch.recording.writes import Buffer
from wrt._core.where import spot as spot_of

if TYPE_CHECKING:
    from wrt._backends.torch.recording.recorder import Recorder


def shadows_for(
    recorder: Recorder, name: str, given: list[Tensor], entries: list[Entry], writes: bool
) -> tuple[bool, dict[int, Tensor] | None]:
    """Whether the user's own graph records this call, and the shadows of what it does not record."""
    plain = False
    replaced: dict[int, Tensor] | None = None
    only_the_first = name in UNDIFFERENTIABLE_INPUTS
    for tensor, entry in zip(given, entries):
        if tensor.requires_grad:
            plain = True
            continue
        if only_the_first and tensor is not given[0]:
            continue
        shadow = entry.shadow
        if shadow is None or writes or recorder.written:
            if not entry.differentiable or tensor.is_inference() or tensor.layout != torch.strided or tensor.is_nested:
                continue
            shadow = shadow_of(recorder, tensor, entry, written=writes or bool(recorder.written))
        if replaced is None:
            replaced = {}
        replaced[id(tensor)] = shadow
    return plain, replaced


def shadow_of(recorder: Recorder, tensor: Tensor, entry: Entry, *, written: bool = False) -> Tensor:
    """The differentiable shadow of a plain tensor, on the same memory; the shadow of a view is a view of its base's shadow.

    A detached tensor shares memory with the one it came from, but is no view of it: it gets a shadow of its own. Nothing may be
    written into one of several views that `unbind` or `split` made, nor may they be read afterwards: a view of its own is.
    """
    shadow = entry.shadow
    base = tensor._base
    if base is None or base.requires_grad or base.dtype != tensor.dtype:
        if shadow is None:
            shadow = new_shadow(tensor)
            entry.buffer = entry.buffer if entry.buffer is not None and entry.buffer.writes else Buffer(shadow)
            entry.buffer.base = shadow
    else:
        root = recorder.entry(base)
        whole = shadow_of(recorder, base, root)
        if shadow is None or (shadow is not whole and (shadow._base is not whole or (written and is_one_of_several(shadow)))):
            shadow = whole.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        entry.buffer = root.buffer
    entry.shadow = shadow
    if entry.node is None:
        entry.node, entry.output = shadow.grad_fn, shadow.output_nr
    return shadow


def reshape_in_place(
    recorder: Recorder, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], entry: Entry, frame: Any
) -> Any:
    """The user's tensor gets another shape where it lies, and its shadow that of a view."""
    tensor, before, shadow = args[0], entry.number, entry.shadow
    with torch.enable_grad():
        view = None if shadow is None else getattr(shadow, name[:-1])(*args[1:], **kwargs)
    with keep_version_counter(tensor):  # no number was written
        func(*args, **kwargs)
    entry.shadow, entry.geometry = view, None
    recorder.renumber(tensor, entry, len(recorder.operations))
    recorder.note(name, func, [before], [entry.number], spot_of(frame))
    return tensor


def run_on_shadows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], replaced: dict[int, Tensor]) -> Any:
    """The user's call, on shadows; on the plain tensors where torch refuses those."""
    run = [_swap(arg, replaced) for arg in args]
    named = {key: _swap(arg, replaced) for key, arg in kwargs.items()} if kwargs else kwargs
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


def hand_back(
    recorder: Recorder, result: Any, given: list[Tensor], entries: list[Entry], replaced: dict[int, Tensor], plain: bool
) -> Any:
    """What the user gets: their own tensors instead of shadows, plain aliases instead of unasked-for graphs."""

    def back(tensor: Tensor) -> Tensor:
        for own, entry in zip(given, entries, strict=True):
            if tensor is entry.shadow and id(own) in replaced:
                return own
        if plain or not tensor.requires_grad:
            return tensor
        return _alias(recorder, tensor, given, entries)

    if isinstance(result, Tensor):
        return back(result)
    if isinstance(result, (tuple, list)) and any(isinstance(item, Tensor) for item in result):
        items = [back(item) if isinstance(item, Tensor) else item for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return result


def _alias(recorder: Recorder, shadow: Tensor, given: list[Tensor], entries: list[Entry]) -> Tensor:
    """The plain tensor that a result is for the user: a view of their own tensor where torch would give one."""
    base = shadow._base
    if base is not None:
        for own, source in zip(given, entries, strict=True):
            held = None if source.buffer is None else source.buffer.base
            if held is None or (held is not base and held._base is not base) or own.dtype != shadow.dtype:
                continue
            whole = own if own._base is None else own._base
            view = whole.as_strided(shadow.size(), shadow.stride(), shadow.storage_offset())
            recorder.meet(view, len(recorder.operations)).cast(shadow, source.buffer)
            return view
    alias = shadow.detach()
    recorder.meet(alias, len(recorder.operations)).cast(shadow, None if shadow.layout != torch.strided else Buffer(shadow))
    return alias


def _swap(arg: Any, shadows: dict[int, Tensor]) -> Any:
    """An argument with its tensors replaced by their shadows."""
    if isinstance(arg, Tensor):
        return shadows.get(id(arg), arg)
    if type(arg) is list or type(arg) is tuple:
        return type(arg)(_swap(item, shadows) for item in arg)
    return arg
