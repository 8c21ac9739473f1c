"""Memory that is written in place: every write is a version, and a version is a place in the autograd graph.

While the user's code runs a write costs one append. Which write owns which element is found later, by replaying the
pattern of each write on a tensor of integers that has the layout of the memory: views, slices and masks then just work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from wrt._backends.torch import compat
from wrt._core.where import Spot

Geometry = tuple[Any, Any, int]  # size, stride, storage offset


@dataclass(frozen=True, slots=True)
class Version:
    """The whole buffer after one write: its edge, and what was written where."""

    edge: GradientEdge | None
    geometry: Geometry
    op: str
    pattern: tuple[Any, ...]
    spot: Spot | None
    number: int
    afresh: bool = False
    """Written without gradients: the history of all of it begins here, whatever was touched."""


class Buffer:
    """One piece of memory: the tensor that stands for all of it, and its versions so far."""

    __slots__ = ("__weakref__", "_owner", "adopted", "base", "base_geometry", "length", "versions", "writes")

    def __init__(self, base: Tensor, before: GradientEdge | None = None) -> None:
        # the user's own tensor once it requires grad, its twin before; None after the run
        self.base: Tensor | None = base
        self.base_geometry = geometry(base)
        self.length = base.untyped_storage().nbytes() // base.element_size()
        self.adopted = False
        self.writes = 0
        self.versions = [Version(before or compat.edge_of(base), self.base_geometry, "", (), None, -1)]
        self._owner: tuple[int, npt.NDArray[np.int64]] | None = None

    def wrote(self, version: Version) -> None:
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

    def times_written(self) -> npt.NDArray[np.int64]:
        """For every element of the memory, how many writes touched it."""
        counts = torch.zeros(self.length, dtype=torch.int64)
        for version in self.versions[1:]:
            once = torch.zeros(self.length, dtype=torch.int64)
            _replay(once, version, 1)
            counts += once
        return counts.numpy()

    def touched(self, k: int) -> int:
        """How many elements the k-th write touched."""
        version = self.versions[k]
        return len(self.region(k)) if version.pattern else math.prod(version.geometry[0])

    def region(self, k: int) -> npt.NDArray[np.int64]:
        """Offsets in memory that the k-th write touched."""
        marks = torch.zeros(self.length, dtype=torch.int64)
        _replay(marks, self.versions[k], 1)
        return np.flatnonzero(marks.numpy())

    def positions(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Offsets in memory as flat positions of the base."""
        size, stride, start = self.base_geometry
        if _is_row_major(size, stride):
            return offsets - start
        offered = offsets_of(self.base_geometry)
        order = np.argsort(offered, kind="stable")
        found: npt.NDArray[np.int64] = order[np.searchsorted(offered[order], offsets)]
        return found


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


def _is_row_major(size: Any, stride: Any) -> bool:
    expected = 1
    for length, step in zip(reversed(size), reversed(stride), strict=True):
        if length != 1 and step != expected:
            return False
        expected *= length
    return True


def pattern_of(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """What has to be kept of a write to replay where it went; index tensors are copied, they may change."""
    if op == "__setitem__":
        return ("index", _kept(args[1]))
    if op in ("index_put_", "_index_put_impl_"):
        return ("index", tuple(_kept(item) for item in _get(args, kwargs, 1, "indices")))
    if op in ("masked_fill_", "masked_scatter_"):
        return ("mask", _kept(_get(args, kwargs, 1, "mask")))
    if op in ("index_fill_", "index_copy_", "index_add_", "index_reduce_"):
        return ("along", _get(args, kwargs, 1, "dim"), _kept(_get(args, kwargs, 2, "index")))
    if op.startswith("scatter_"):
        return ("scatter", _get(args, kwargs, 1, "dim"), _kept(_get(args, kwargs, 2, "index")))
    if op == "put_":
        return ("put", _kept(_get(args, kwargs, 1, "index")))
    if op == "fill_diagonal_":
        return ("diagonal",)
    return ()


def _get(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str) -> Any:
    return args[place] if len(args) > place else kwargs[name]


def _kept(index: Any) -> Any:
    if isinstance(index, Tensor):
        return index.detach().cpu().clone()
    if isinstance(index, (list, tuple)):
        return type(index)(_kept(item) for item in index)
    return index


def _replay(marks: Tensor, version: Version, mark: int) -> None:
    """Mark the elements that one write touched."""
    size, stride, start = version.geometry
    target = marks.as_strided(tuple(size), tuple(stride), start)
    kind, *what = version.pattern or ("whole",)
    if kind == "index":
        target[what[0]] = mark
    elif kind == "mask":
        target.masked_fill_(what[0], mark)
    elif kind == "along":
        target.index_fill_(what[0], what[1], mark)
    elif kind == "scatter":
        target.scatter_(what[0], what[1], mark)
    elif kind == "put":
        target.put_(what[0], torch.full_like(what[0], mark))
    elif kind == "diagonal":
        target.fill_diagonal_(mark)
    else:
        target.fill_(mark)
