"""Operations that move numbers, or sum them along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = Any


def _spread(a: Array, *sizes: Array, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None) -> Array:
    kept = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, a.shape, strict=True):
        kept[axis] = size
    return np.broadcast_to(a.reshape(kept), shape)


def _pad(a: Array, value: Array, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """Room before, after and between; what is negative is cut off."""
    sizes = [
        low + high + n + max(n - 1, 0) * between for n, (low, high, between) in zip(a.shape, padding_config, strict=True)
    ]
    whole = np.full([max(size, 0) for size in sizes], value, a.dtype)
    into, taken = [], []
    for n, size, (low, _, between) in zip(a.shape, whole.shape, padding_config, strict=True):
        step = between + 1
        first = max(0, -(low // step)) if low < 0 else 0
        last = min(n, (size - 1 - low) // step + 1) if size else 0
        last = max(first, last)
        start = low + first * step
        into.append(slice(start, start + max(0, (last - first - 1) * step + 1) if last > first else start, step))
        taken.append(slice(first, last))
    whole[tuple(into)] = a[tuple(taken)]
    return whole


def _slice(a: Array, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None) -> Array:
    steps = strides or (1,) * a.ndim
    return a[tuple(slice(*bounds) for bounds in zip(start_indices, limit_indices, steps, strict=True))]


def places(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Array]) -> tuple[slice, ...]:
    """Where a piece lies: a start beyond the edge is moved back, as JAX does."""
    at = [max(0, min(int(start), n - size)) for start, n, size in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(start, start + size) for start, size in zip(at, sizes, strict=True))


def _updated(a: Array, piece: Array, *starts: Array) -> Array:
    whole = a.copy()
    whole[places(a.shape, piece.shape, starts)] = piece
    return whole


def _reshape(a: Array, *sizes: Array, new_sizes: Sequence[int], dimensions: Any, sharding: Any = None) -> Array:
    return (a if dimensions is None else a.transpose(dimensions)).reshape(new_sizes)


def _split(a: Array, sizes: Sequence[int], axis: int) -> list[Array]:
    return np.split(a, np.cumsum(sizes)[:-1], axis)


def _unstack(a: Array, axis: int) -> list[Array]:
    return list(np.moveaxis(a, axis, 0))


def _reduced(sum_up: Callable[..., Array]) -> Callable[..., Array]:
    return lambda a, axes, out_sharding=None: sum_up(a, axis=tuple(axes))


def _running(accumulate: Callable[..., Array]) -> Callable[..., Array]:
    def run(a: Array, axis: int, reverse: bool) -> Array:
        return np.flip(accumulate(np.flip(a, axis), axis), axis) if reverse else accumulate(a, axis)

    return run


def _iota(*sizes: Array, dtype: Any, shape: Sequence[int], dimension: int, sharding: Any = None) -> Array:
    along = [1] * len(shape)
    along[dimension] = shape[dimension]
    return np.broadcast_to(np.arange(shape[dimension]).astype(dtype).reshape(along), shape)


def _cast(a: Array, new_dtype: Any, weak_type: bool, sharding: Any = None) -> Array:
    if a.dtype.kind == "c" and np.dtype(new_dtype).kind != "c":
        a = a.real
    return a.astype(new_dtype, copy=False)


RULES: dict[str, Callable[..., Any]] = {
    "argmax": lambda a, axes, index_dtype: np.argmax(a, axes[0]),
    "argmin": lambda a, axes, index_dtype: np.argmin(a, axes[0]),
    "broadcast_in_dim": _spread,
    "concatenate": lambda *parts, dimension: np.concatenate(parts, dimension),
    "convert_element_type": _cast,
    "copy": lambda a: a,
    "copy_p": lambda a: a,
    "cummax": _running(np.maximum.accumulate),
    "cummin": _running(np.minimum.accumulate),
    "cumprod": _running(np.multiply.accumulate),
    "cumsum": _running(np.add.accumulate),
    "dynamic_slice": lambda a, *starts, slice_sizes: a[places(a.shape, slice_sizes, starts)],
    "dynamic_update_slice": _updated,
    "expand_dims": lambda a, dimensions: np.expand_dims(a, tuple(dimensions)),
    "iota": _iota,
    "optimization_barrier": lambda *parts: list(parts),
    "pad": _pad,
    "reduce_and": _reduced(np.bitwise_and.reduce),
    "reduce_max": _reduced(np.max),
    "reduce_min": _reduced(np.min),
    "reduce_or": _reduced(np.bitwise_or.reduce),
    "reduce_prod": _reduced(np.prod),
    "reduce_sum": _reduced(np.sum),
    "reshape": _reshape,
    "rev": lambda a, dimensions: np.flip(a, tuple(dimensions)),
    "slice": _slice,
    "split": _split,
    "squeeze": lambda a, dimensions: np.squeeze(a, tuple(dimensions)),
    "stop_gradient": lambda a, **_: a,
    "stack": lambda *parts, axis: np.stack(parts, axis),
    "transpose": lambda a, permutation: a.transpose(permutation),
    "unstack": _unstack,
}

ROUNDED = frozenset({"cumprod", "cumsum", "reduce_prod", "reduce_sum"})
"""What depends on the order in which numbers are added; all others give the same bits in NumPy."""
