"""Running the user's calls on twins, and handing back what the user would have got without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wrt._backends.torch import twins
from wrt._backends.torch.buffers import Buffer
from wrt._backends.torch.compat import is_one_of_several
from wrt._backends.torch.kinds import REFUSALS, UNDIFFERENTIABLE_INPUTS
from wrt._backends.torch.tensors import Entry, swapped
from wrt._core.where import spot as spot_of

if TYPE_CHECKING:
    from wrt._backends.torch.listen import Listener


def twins_for(
    listener: Listener, name: str, given: list[Tensor], entries: list[Entry], writes: bool
) -> tuple[bool, dict[int, Tensor] | None]:
    """Whether the user's own graph records this call, and the twins of what it does not record."""
    plain = False
    replaced: dict[int, Tensor] | None = None
    only_the_first = name in UNDIFFERENTIABLE_INPUTS
    for tensor, entry in zip(given, entries):
        if tensor.requires_grad:
            plain = True
            continue
        if only_the_first and tensor is not given[0]:
            continue
        twin = entry.shadow
        if twin is None or writes or listener.written:
            if not entry.followed or tensor.is_inference() or tensor.layout != torch.strided or tensor.is_nested:
                continue
            twin = twin_of(listener, tensor, entry, written=writes or bool(listener.written))
        if replaced is None:
            replaced = {}
        replaced[id(tensor)] = twin
    return plain, replaced


def twin_of(listener: Listener, tensor: Tensor, entry: Entry, *, written: bool = False) -> Tensor:
    """The differentiable twin of a plain tensor, on the same memory; the twin of a view is a view of its base's twin.

    A detached tensor shares memory with the one it came from, but is no view of it: it gets a twin of its own. Nothing may be
    written into one of several views that `unbind` or `split` made, nor may they be read afterwards: a view of its own is.
    """
    twin = entry.shadow
    base = tensor._base
    if base is None or base.requires_grad or base.dtype != tensor.dtype:
        if twin is None:
            twin = twins.enter(tensor)
            entry.buffer = entry.buffer if entry.buffer is not None and entry.buffer.writes else Buffer(twin)
            entry.buffer.base = twin
    else:
        root = listener.entry(base)
        whole = twin_of(listener, base, root)
        stale = twin is not None and twin is not whole and (twin._base is not whole or (written and is_one_of_several(twin)))
        if twin is None or stale:
            twin = whole.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        entry.buffer = root.buffer
    entry.shadow = twin
    if entry.node is None:
        entry.node, entry.output = twin.grad_fn, twin.output_nr
    return twin


def turned(
    listener: Listener, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], entry: Entry, frame: Any
) -> Any:
    """The user's tensor gets another shape where it lies, and its twin that of a view."""
    tensor, before, twin = args[0], entry.number, entry.shadow
    with torch.enable_grad():
        view = None if twin is None else getattr(twin, name[:-1])(*args[1:], **kwargs)
    with torch.autograd._unsafe_preserve_version_counter(tensor):  # no number was written
        func(*args, **kwargs)
    entry.shadow, entry.geometry = view, None
    listener.renumber(tensor, entry, len(listener.operations))
    listener.note(name, func, [before], [entry.number], spot_of(frame))
    return tensor


def run_on_twins(
    func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], replaced: dict[int, Tensor]
) -> Any:
    """The user's call, on twins; on the plain tensors where torch refuses those."""
    if name in UNDIFFERENTIABLE_INPUTS:
        first = args[0] if args else kwargs["input"]
        twin = replaced.get(id(first))
        replaced.clear()
        if twin is not None:
            replaced[id(first)] = twin
    run = [swapped(arg, replaced) for arg in args]
    named = {key: swapped(arg, replaced) for key, arg in kwargs.items()} if kwargs else kwargs
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


def handed_back(
    listener: Listener,
    result: Any,
    given: list[Tensor],
    entries: list[Entry],
    replaced: dict[int, Tensor],
    plain: bool,
) -> Any:
    """What the user gets: their own tensors instead of twins, plain aliases instead of unasked-for graphs."""

    def back(tensor: Tensor) -> Tensor:
        for own, entry in zip(given, entries, strict=True):
            if tensor is entry.shadow and id(own) in replaced:
                return own
        if plain or not tensor.requires_grad:
            return tensor
        return _alias(listener, tensor, given, entries)

    if isinstance(result, Tensor):
        return back(result)
    if isinstance(result, (tuple, list)) and any(isinstance(item, Tensor) for item in result):
        items = [back(item) if isinstance(item, Tensor) else item for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return result


def _alias(listener: Listener, twin: Tensor, given: list[Tensor], entries: list[Entry]) -> Tensor:
    """The plain tensor that a result is for the user: a view of their own tensor where torch would give one."""
    base = twin._base
    if base is not None:
        for own, source in zip(given, entries, strict=True):
            held = None if source.buffer is None else source.buffer.base
            if held is None or (held is not base and held._base is not base) or own.dtype != twin.dtype:
                continue
            whole = own if own._base is None else own._base
            view = whole.as_strided(twin.size(), twin.stride(), twin.storage_offset())
            entry = listener.meet(view, len(listener.operations))
            entry.shadow, entry.node, entry.output = twin, twin.grad_fn, twin.output_nr
            entry.buffer, entry.stamp = source.buffer, source.buffer.writes if source.buffer is not None else 0
            return view
    alias = twin.detach()
    entry = listener.meet(alias, len(listener.operations))
    entry.shadow, entry.node, entry.output = twin, twin.grad_fn, twin.output_nr
    entry.buffer, entry.stamp = None if twin.layout != torch.strided else Buffer(twin), 0
    return alias
