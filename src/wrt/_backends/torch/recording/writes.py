"""In-place writes: every write of a piece of memory is a version of it, and a version is a place in the autograd graph.

While the user's code runs a write costs one append. Which write owns which element is found later, by replaying the
pattern of each write on a tensor of integers that has the layout of the memory: views, slices and masks then just work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from wrt._backends.torch import compat
from wrt._backends.torch.kinds import UNDIFFERENTIABLE_INPUTS
from wrt._backends.torch.recording.entries import Entry, adopt_history, new_shadow, tensors_in
from wrt._core.where import Spot

if TYPE_CHECKING:
    from wrt._backends.torch.recording.recorder import Recorder

Geometry = tuple[Any, Any, int]  # size, stride, storage offset

# ---------------------------------------------------------------- memory and its versions


@dataclass(frozen=True, slots=True)
class Version:
    """The whole buffer after one write: its edge, and what was written where."""

    edge: GradientEdge | None
    geometry: Geometry
    pattern: tuple[Any, ...]
    spot: Spot | None
    number: int
    afresh: bool = False
    """Written without gradients: the history of all of it begins here, whatever was touched."""


class Buffer:
    """One piece of memory: the tensor that stands for all of it, and its versions so far."""

    __slots__ = ("__weakref__", "_owner", "adopted", "base", "base_geometry", "length", "versions", "writes")

    def __init__(self, base: Tensor, before: GradientEdge | None = None) -> None:
        # the user's own tensor once it requires grad, its shadow before; None after the run
        self.base: Tensor | None = base
        self.base_geometry = geometry(base)
        self.length = base.untyped_storage().nbytes() // base.element_size()
        self.adopted = False
        self.writes = 0
        self.versions = [Version(before or compat.edge_of(base), self.base_geometry, (), None, -1)]
        self._owner: tuple[int, npt.NDArray[np.int64]] | None = None

    def add(self, version: Version) -> None:
        self.writes += 1
        self.versions.append(version)

    def owners(self) -> npt.NDArray[np.int64]:
        """For every element of the memory, the version that wrote it last."""
        if self._owner is None or self._owner[0] != self.writes:
            marks = torch.zeros(self.length, dtype=torch.int64)
            for k, version in enumerate(self.versions[1:], start=1):
                if version.afresh:
                    marks.fill_(k)
                else:
                    _replay(marks, version, k)
            self._owner = (self.writes, marks.numpy())
        return self._owner[1]

    def write_counts(self) -> npt.NDArray[np.int64]:
        """For every element of the memory, how many writes touched it."""
        counts = np.zeros(self.length, dtype=np.int64)
        for k in range(1, len(self.versions)):
            counts[self.region(k)] += 1
        return counts

    def extent(self, k: int) -> int:
        """How many elements the k-th write touched."""
        version = self.versions[k]
        return len(self.region(k)) if version.pattern else math.prod(version.geometry[0])

    def region(self, k: int) -> npt.NDArray[np.int64]:
        """Offsets in memory that the k-th write touched."""
        marks = torch.zeros(self.length, dtype=torch.int64)
        _replay(marks, self.versions[k], 1)
        return np.flatnonzero(marks.numpy())


def geometry(tensor: Tensor) -> Geometry:
    return tensor.shape, tensor.stride(), tensor.storage_offset()


def offsets_of(at: Geometry, positions: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
    """Where elements of a tensor lie in its memory."""
    size, stride, start = at
    if positions is None:
        positions = np.arange(math.prod(size), dtype=np.int64)
    offsets = np.full(positions.shape, start, dtype=np.int64)
    if len(size):
        for coordinate, step in zip(np.unravel_index(positions, tuple(size)), stride, strict=True):
            offsets += coordinate * step
    return offsets


def positions_of(at: Geometry, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """Places in memory as flat positions of a tensor; None where one is no element of it."""
    expected = 1
    for length, step in zip(reversed(at[0]), reversed(at[1]), strict=True):
        if length != 1 and step != expected:
            break
        expected *= length
    else:
        return offsets - at[2]
    offered = offsets_of(at)
    order = np.argsort(offered, kind="stable")
    found = np.minimum(np.searchsorted(offered[order], offsets), len(order) - 1)
    positions: npt.NDArray[np.int64] = order[found]
    return positions if np.array_equal(offered[positions], offsets) else None


def pattern_of(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """A method of tensors and its arguments that fill what a write touched; () where that is all of its target.

    Index tensors are copied, they may change.
    """

    def given(place: int, name: str) -> Any:
        return _copy_index(args[place] if len(args) > place else kwargs[name])

    if op == "__setitem__":
        return op, given(1, "")
    if op in ("index_put_", "_index_put_impl_"):
        return "__setitem__", tuple(given(1, "indices"))
    if op in ("masked_fill_", "masked_scatter_"):
        return "masked_fill_", given(1, "mask")
    if op in ("index_fill_", "index_copy_", "index_add_", "index_reduce_"):
        return "index_fill_", given(1, "dim"), given(2, "index")
    if op.startswith("scatter_"):
        return "scatter_", given(1, "dim"), given(2, "index")
    if op == "put_":
        return op, given(1, "index")
    return (op,) if op == "fill_diagonal_" else ()


def _copy_index(index: Any) -> Any:
    if isinstance(index, Tensor):
        return index.detach().cpu().clone()
    if isinstance(index, (list, tuple)):
        return type(index)(_copy_index(item) for item in index)
    return index


def _replay(marks: Tensor, version: Version, mark: int) -> None:
    """Mark the elements that one write touched."""
    size, stride, start = version.geometry
    target = marks.as_strided(tuple(size), tuple(stride), start)
    method, *args = version.pattern or ("fill_",)
    getattr(target, method)(*args, torch.full_like(args[0], mark) if method == "put_" else mark)


# ---------------------------------------------------------------- noting a call that writes

Written = tuple[Buffer, int, int]  # the memory, the value it has now, its how-many-th write


class Call(NamedTuple):
    """A call that wrote: `plain` when the user's own graph recorded it, `enabled` when gradients were on."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    plain: bool
    enabled: bool
    spot: Spot | None


def prepare_write(recorder: Recorder, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Keep what backward needs of tensors that a call is about to overwrite, and know where their history stood.

    Gives the function to call in its place: one that also keeps what the write itself saves.
    """
    targets = _targets(name, args, kwargs)
    for tensor in targets:
        recorder.saved.before_write(tensor)
        if tensor._base is not None:
            recorder.entry(tensor._base)
    if not targets or name in UNDIFFERENTIABLE_INPUTS or not torch.is_grad_enabled() or not compat.saved_tensors_hooks_allowed():
        return func

    def write(*given: Any, **named: Any) -> Any:
        with recorder.saved.hooks(_targets(name, given, named)):
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


def running_statistics(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Running statistics that a norm has updated; their version counters do not tell."""
    if func not in (torch.nn.functional.batch_norm, torch.nn.functional.instance_norm):
        return []
    instance = func is torch.nn.functional.instance_norm
    training = args[5] if len(args) > 5 else kwargs.get("use_input_stats" if instance else "training", instance)
    return tensors_in(args[1:3], {key: kwargs.get(key) for key in ("running_mean", "running_var")}) if training else []


def note_writes(
    recorder: Recorder, call: Call, given: list[Tensor], versions: list[int], entries: list[Entry]
) -> tuple[Written, ...]:
    """Note the writes of one call. Views share a version counter: of several on one memory only the target changed."""
    changed = {id(t): k for k, t in enumerate(given) if versions[k] >= 0 and t._version != versions[k]}
    out = tensors_in((), {"out": call.kwargs.get("out")})
    seen: set[int] = set()
    writes = []
    for tensor in [*out, *given]:
        memory = compat.memory_of(tensor) if id(tensor) in changed else 0
        if memory and memory not in seen:
            seen.add(memory)
            writes.append(_note_write(recorder, call, tensor, entries[changed[id(tensor)]]))
    return tuple(writes)


def note_write_behind(recorder: Recorder, tensor: Tensor, entry: Entry, spot: Spot | None) -> Written:
    """Note that the memory of a tensor was written without autograd, through what `.data` or `.detach()` gave."""
    return _note_write(recorder, Call("data=", (), {}, plain=False, enabled=False, spot=spot), tensor, entry)


def _note_write(recorder: Recorder, call: Call, tensor: Tensor, entry: Entry) -> Written:
    base = tensor if tensor._base is None else tensor._base
    root = entry if base is tensor else recorder.entry(base)
    if call.plain and call.enabled and entry.shadow is not None and not tensor.requires_grad:
        assert root.buffer is not None
        adopt_history(base, root.buffer.base)
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
            root.buffer.base = root.shadow = new_shadow(base)
    buffer = root.buffer
    if not buffer.writes:
        recorder.written.append(buffer)
    recorder.renumber(tensor, entry, len(recorder.operations))
    edge = compat.edge_of(buffer.base) if buffer.base is not None else None
    pattern = pattern_of(call.name, call.args, call.kwargs)
    buffer.add(Version(edge, geometry(tensor), pattern, call.spot, entry.number, afresh))
    entry.buffer, entry.stamp = buffer, buffer.writes
    return buffer, entry.number, buffer.writes


# ---------------------------------------------------------------- in words


def describe_region(touched: Any, mine: Any, shape: tuple[int, ...]) -> str:
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
