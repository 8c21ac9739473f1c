"""Noting in-place writes: which tensor a call wrote, and which version of its memory that made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from wrt._backends.torch import compat, twins
from wrt._backends.torch.buffers import Buffer, Version, geometry, pattern_of
from wrt._backends.torch.kinds import UNDIFFERENTIABLE_INPUTS
from wrt._backends.torch.tensors import Entry, tensors_in
from wrt._core.where import Spot

if TYPE_CHECKING:
    from wrt._backends.torch.listen import Listener

Written = tuple[Buffer, int, int]  # the memory, the value it has now, its how-many-th write


class Call(NamedTuple):
    """A call that wrote: `plain` when the user's own graph recorded it, `enabled` when gradients were on."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    plain: bool
    enabled: bool
    spot: Spot | None


def before_writes(listener: Listener, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Keep what backward needs of tensors that a call is about to overwrite, and know where their history stood.

    Gives the function to call in its place: one that also keeps what the write itself saves.
    """
    targets = _targets(name, args, kwargs)
    for tensor in targets:
        listener.saved.before_write(tensor)
        if tensor._base is not None:
            listener.entry(tensor._base)
    if not targets or name in UNDIFFERENTIABLE_INPUTS or not torch.is_grad_enabled():
        return func
    if not torch._C._autograd._saved_tensors_hooks_is_enabled():
        return func

    def write(*given: Any, **named: Any) -> Any:
        with listener.saved.hooks(_targets(name, given, named)):
            return func(*given, **named)

    return write


def _targets(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Tensors that a call may write into: what is under out=, running statistics, or the first argument."""
    out = kwargs.get("out")
    if out is not None:
        given = tensors_in((), {"out": out})
    elif name in UNDIFFERENTIABLE_INPUTS:
        given = tensors_in(args[1:5], kwargs)
    elif name in ("embedding", "embedding_bag"):
        renormalizes = len(args) > 3 or kwargs.get("max_norm")
        given = tensors_in(args[1:2], {"weight": kwargs.get("weight")}) if renormalizes else []
    else:
        given = tensors_in(args[:1], {})
    return [tensor for tensor in given if tensor.layout == torch.strided]


def statistics(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Running statistics that a norm has updated; their version counters do not tell."""
    if func not in (torch.nn.functional.batch_norm, torch.nn.functional.instance_norm):
        return []
    instance = func is torch.nn.functional.instance_norm
    training = args[5] if len(args) > 5 else kwargs.get("use_input_stats" if instance else "training", instance)
    return tensors_in(args[1:3], {key: kwargs.get(key) for key in ("running_mean", "running_var")}) if training else []


def note_writes(
    listener: Listener, call: Call, given: list[Tensor], versions: list[int], entries: list[Entry]
) -> tuple[Written, ...]:
    """Note the writes of one call. Views share a version counter: of several on one memory only the target changed."""
    changed = {id(t): k for k, t in enumerate(given) if versions[k] >= 0 and t._version != versions[k]}
    out = tensors_in((), {"out": call.kwargs.get("out")})
    seen: set[int] = set()
    noted = []
    for tensor in [*out, *given]:
        memory = tensor.untyped_storage()._cdata if id(tensor) in changed else 0
        if memory and memory not in seen:
            seen.add(memory)
            noted.append(_wrote(listener, call, tensor, entries[changed[id(tensor)]]))
    return tuple(noted)


def note_write_behind(listener: Listener, tensor: Tensor, entry: Entry, spot: Spot | None) -> Written:
    """Note that the memory of a tensor was written without autograd, through what `.data` or `.detach()` gave."""
    return _wrote(listener, Call("data=", (), {}, plain=False, enabled=False, spot=spot), tensor, entry)


def _wrote(listener: Listener, call: Call, tensor: Tensor, entry: Entry) -> Written:
    base = tensor if tensor._base is None else tensor._base
    root = entry if base is tensor else listener.entry(base)
    if call.plain and call.enabled and entry.shadow is not None and not tensor.requires_grad:
        assert root.buffer is not None
        twins.adopt(base, root.buffer.base)
    if base.requires_grad:
        if root.buffer is None:
            root.buffer = Buffer(base, root.edge())
        root.buffer.base, root.buffer.adopted = base, True
        root.shadow = entry.shadow = None
    elif root.buffer is None:
        root.buffer = Buffer(base)
    afresh = not call.enabled and not base.requires_grad and root.buffer.base is not base
    if afresh:
        with torch.enable_grad():  # its numbers are no longer what its history says
            root.buffer.base = root.shadow = twins.enter(base)
    buffer = root.buffer
    if not buffer.writes:
        listener.written.append(buffer)
    listener.renumber(tensor, entry, len(listener.operations))
    edge = compat.edge_of(buffer.base) if buffer.base is not None else None
    pattern = pattern_of(call.name, call.args, call.kwargs)
    buffer.wrote(Version(edge, geometry(tensor), call.name, pattern, call.spot, entry.number, afresh))
    entry.buffer, entry.stamp = buffer, buffer.writes
    return buffer, entry.number, buffer.writes
