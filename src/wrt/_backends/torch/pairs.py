"""Which elements meet in one operation, read off its own backward by a few vectors: no table of operations is needed.

Most operations of irregular programs (gathers, scatters, slices, sums, everything elementwise) touch each element of one
side once: pulled (or pushed) through such an operation, the numbers 1, 2, 3, ... come back as c_i times the number of
the one element that i meets, and ones come back as c_i. A vector of random numbers proves it. Matrix products have rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from wrt._backends.torch import compat
from wrt._backends.torch.local import ELEMENTWISE, shape_of
from wrt._backends.torch.walk import Spot, walk
from wrt._core.index import Positions, Shape
from wrt._core.local_maps import LocalMap, LocalMaps
from wrt._core.value import Value

Pairs = tuple[Positions, Positions]
MOST_NODES = 2000
MOST_NUMBERS = 2**20  # numbers larger than this are not told apart in single precision
MOST_PAIRS = 2**24
NEARLY = 0.2  # how far from a whole number one may come back
TOLERANCE = 1e-4  # of a random number that comes back


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
    walked = walk(start, end, most=MOST_NODES, known=lambda node: not hasattr(node, "_forward_cls"))
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
    if max(np.prod(after), np.prod(before)) > MOST_NUMBERS:
        return None
    try:
        return _read_off(spot, k, after, before)
    except (RuntimeError, TypeError, IndexError):
        return None


def _certain_pairs(spot: Spot, k: int, source: Spot) -> Pairs | tuple[()] | None:
    """The same of operations that move numbers, add them up or map them one by one."""
    name, after, before = type(spot[0]).__name__, shape_of(spot), shape_of(source)
    if name in ELEMENTWISE and after != before:
        whom = np.broadcast_to(np.arange(int(np.prod(before))).reshape(before), after)
        return np.arange(int(np.prod(after))), whom.reshape(-1)
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
    met = _one_each([vector.reshape(-1).double().cpu().numpy() for vector in made], int(np.prod(after)))
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
        met = _one_each([vector.reshape(-1).double().cpu().numpy() for vector in made], int(np.prod(before)))
        return None if met is None else _told(met, after, before)
    return _told((met[1], met[0]), after, before)


def _told(met: Pairs, after: Shape, before: Shape) -> Pairs | tuple[()]:
    """() where whoever meets anybody meets itself: zeros are slopes that happen to be zero here."""
    return () if after == before and len(met[0]) and np.array_equal(*met) else met


def _vectors(shape: Shape, dtype: torch.dtype, device: Any) -> list[torch.Tensor]:
    """Ones, 1 2 3 ..., and random numbers that prove what those say."""
    size = int(np.prod(shape))
    return [
        torch.from_numpy(vector).to(dtype=dtype, device=device).reshape(shape)
        for vector in (np.ones(size), np.arange(1.0, size + 1), _random(size))
    ]


def _random(size: int) -> np.ndarray:
    made: np.ndarray = np.random.default_rng(5).uniform(1, 10, size)
    return made


def _one_each(made: list[np.ndarray], size: int) -> Pairs | None:
    """(i, the one element it meets) for each i that meets one; None where some i meets several."""
    slope, numbered, random = made
    if not np.isfinite(slope).all():
        return None
    alive = np.flatnonzero(slope)
    told = numbered[alive] / slope[alive]
    partner = np.rint(told).astype(np.int64) - 1
    if len(partner) and (partner.min() < 0 or partner.max() >= size or np.abs(told - partner - 1).max() > NEARLY):
        return None
    weights = _random(size)
    expected = slope[alive] * weights[partner]
    silent = np.delete(random, alive)
    if np.any(np.abs(random[alive] - expected) > TOLERANCE * np.abs(expected)) or np.any(silent != 0):
        return None
    return alive, partner


def _by_rule(node: Any, k: int, after: Shape, before: Shape) -> Pairs | None:
    """Matrix products, and what mixes the last axes: every index of one axis meets every index of another."""
    name = type(node).__name__
    if name in ("MmBackward0", "AddmmBackward0") and len(before) == 2 == len(after):
        left = k == (0 if name == "MmBackward0" else 1)
        return _product((), after, before, left=left)
    if name == "BmmBackward0":
        return _product(after[:1], after[1:], before[1:], left=k == 0)
    width = _mixed(node, name, after) if after == before and k == 0 else None
    if width is None:
        return None
    rows = np.arange(int(np.prod(after)))
    return _few(np.repeat(rows, width), (rows[:, None] // width * width + np.arange(width)).reshape(-1))


def _mixed(node: Any, name: str, shape: Shape) -> int | None:
    """How many neighbors in memory are mixed with each other: a softmax of the last axis, a norm of the last few."""
    if name in ("SoftmaxBackward0", "LogSoftmaxBackward0"):
        dim = node._saved_dim
        last = dim - 2**64 if dim >= 2**63 else dim  # torch shows -1 without its sign
        return shape[-1] if shape and last in (-1, len(shape) - 1) else None
    if name == "NativeLayerNormBackward0":
        return int(np.prod(node._saved_normalized_shape))
    return None


def _product(batch: Shape, after: Shape, before: Shape, *, left: bool) -> Pairs | None:
    """out[b, i, j] of left[b, i, :] or of right[b, :, j]."""
    count = int(np.prod(batch))
    (p, q), (r, s) = after, before
    if count * p * q * (s if left else r) > MOST_PAIRS:
        return None
    b, i, j, inner = np.ogrid[:count, :p, :q, : (s if left else r)]
    rows = (b * p + i) * q + j
    columns = (b * r + i) * s + inner if left else (b * r + inner) * s + j
    shape = np.broadcast_shapes(rows.shape, columns.shape)
    return np.broadcast_to(rows, shape).reshape(-1), np.broadcast_to(columns, shape).reshape(-1)


def _few(rows: Positions, columns: Positions) -> Pairs | None:
    return (rows, columns) if len(rows) <= MOST_PAIRS else None
