"""Which elements meet in one operation, read off its own backward by a few vectors: no table of operations is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from wrt._backends.torch import compat
from wrt._backends.torch.nodes import Spot, signed
from wrt._backends.torch.patch import ELEMENTWISE, shape_of, walk
from wrt._core import partners
from wrt._core.flow import LocalMap, LocalMaps
from wrt._core.index import Shape
from wrt._core.partners import Pairs
from wrt._core.thresholds import MANY_NUMBERS
from wrt._core.value import Value

MOVES = frozenset(
    f"{name}Backward{k}"
    for name in (
        "Alias AsStrided Cat ConstantPadNd Diagonal Expand Flip Gather Index IndexSelect Mean Permute Repeat ReshapeAlias Roll "
        "Select Slice Split SplitWithSizes Squeeze Stack Sum T ToCopy Transpose Unbind UnsafeView Unsqueeze View"
    ).split()
    for k in (0, 1, 2)
)
"""Whose backward is the same whatever the numbers are: an element that is not met is met nowhere."""


def local_maps(y: Value, x: Value, *, certain: bool = False) -> LocalMaps | None:
    """None where an operation between y and x is neither: a convolution, a decomposition, a Function of the user.

    A slope that is zero only here leaves a pair out; `certain` maps are those that leave out none.
    """
    start, end = ((v.key.edge.node, v.key.edge.output_nr) for v in (y, x))
    walked = walk(start, end, lambda node: not hasattr(node, "_forward_cls"))
    if walked is None:
        return None
    spots, sources_of = walked
    maps: list[LocalMap] = []
    with compat.Undisturbed():
        for number, sources in enumerate(sources_of):
            for k, source in sources:
                find = _certain_pairs if certain else _pairs
                found = find(spots[number], k, spots[source])
                if found is None:
                    return None
                maps.append(LocalMap(number, source, found if found else None))
    return LocalMaps(tuple(int(np.prod(shape_of(spot))) for spot in spots), tuple(maps))


def _pairs(spot: Spot, k: int, source: Spot) -> Pairs | tuple[()] | None:
    """Pairs of elements that meet; () for each with its own."""
    node, after, before = spot[0], shape_of(spot), shape_of(source)
    name = type(node).__name__
    if name in ELEMENTWISE and after == before:
        return ()
    ruled = _by_rule(node, k, after, before)
    if ruled is not None:
        return ruled
    if max(np.prod(after), np.prod(before)) > MANY_NUMBERS:
        return None
    try:
        return _read_off(spot, k, after, before)
    except (RuntimeError, TypeError, IndexError):
        return None


def _certain_pairs(spot: Spot, k: int, source: Spot) -> Pairs | tuple[()] | None:
    """The same of operations that move numbers, add them up or map them one by one."""
    name, after, before = type(spot[0]).__name__, shape_of(spot), shape_of(source)
    if name in ELEMENTWISE and after != before:
        return partners.broadcast(after, before)
    return _pairs(spot, k, source) if name in ELEMENTWISE or name in MOVES else None


def _read_off(spot: Spot, k: int, after: Shape, before: Shape) -> Pairs | tuple[()] | None:
    metadata = spot[0]._input_metadata
    like = metadata[spot[1]]
    if any(one.dtype.is_complex for one in metadata):
        return None

    def pulled(seed: torch.Tensor) -> torch.Tensor:
        seeds = [seed if number == spot[1] else torch.zeros(tuple(m.shape), dtype=m.dtype, device=m.device)
                 for number, m in enumerate(metadata)]  # fmt: skip
        found = spot[0](*seeds)
        one: torch.Tensor | None = found[k] if isinstance(found, tuple) else found
        if one is None or one.is_complex():
            raise TypeError("a backward that returns nothing here, or real and imaginary parts, tells no pairs")
        return one if one.shape == before else one.sum_to_size(before)  # as the engine does after a broadcast

    with torch.no_grad():
        made = [pulled(vector) for vector in _vectors(after, like.dtype, like.device)]
    met = partners.one_each([vector.reshape(-1).double().cpu().numpy() for vector in made], int(np.prod(after)))
    if met is None:
        with torch.enable_grad():
            seed = torch.zeros(after, dtype=like.dtype, device=like.device, requires_grad=True)
            out = pulled(seed)
        if not out.requires_grad:
            return None
        made = [
            torch.autograd.grad(out, seed, vector, retain_graph=True)[0]
            for vector in _vectors(before, like.dtype, like.device)
        ]
        met = partners.one_each([vector.reshape(-1).double().cpu().numpy() for vector in made], int(np.prod(before)))
        return None if met is None else partners.told(met, after, before)
    return partners.told((met[1], met[0]), after, before)


def _vectors(shape: Shape, dtype: torch.dtype, device: Any) -> list[torch.Tensor]:
    made = partners.vectors(int(np.prod(shape)))
    return [torch.from_numpy(vector).to(dtype=dtype, device=device).reshape(shape) for vector in made]


def _by_rule(node: Any, k: int, after: Shape, before: Shape) -> Pairs | None:
    """Matrix products, and what mixes the last axes: every index of one axis meets every index of another."""
    name = type(node).__name__
    if name in ("MmBackward0", "AddmmBackward0") and len(before) == 2 == len(after):
        left = k == (0 if name == "MmBackward0" else 1)
        return partners.product((), after, before, left=left)
    if name == "BmmBackward0":
        return partners.product(after[:1], after[1:], before[1:], left=k == 0)
    width = _mixed(node, name, after) if after == before and k == 0 else None
    return None if width is None else partners.neighbors(int(np.prod(after)), width)


def _mixed(node: Any, name: str, shape: Shape) -> int | None:
    """How many neighbors in memory are mixed with each other: a softmax of the last axis, a norm of the last few."""
    if name in ("SoftmaxBackward0", "LogSoftmaxBackward0"):
        return shape[-1] if shape and signed(node._saved_dim) in (-1, len(shape) - 1) else None
    if name == "NativeLayerNormBackward0":
        return int(np.prod(node._saved_normalized_shape))
    return None
