"""Gathers and scatters: windows of an array, at places that another array tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True, slots=True)
class Windows:
    """Where every element of every window lies: for each axis an array of (places..., *window); and which windows fit."""

    at: tuple[Array, ...]
    fit: Array


def _windows(
    shape: Sequence[int], indices: Array, sizes: Sequence[int], axes: Sequence[int], batching: dict[int, int], fills: bool
) -> Windows:
    places, rank = indices.shape[:-1], len(shape)
    fit = np.ones(places, bool)
    at = []
    for axis, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        start = np.zeros(places, np.int64)
        if axis in axes:
            start = indices[..., axes.index(axis)].astype(np.int64)
        elif axis in batching:
            along = [1] * len(places)
            along[batching[axis]] = places[batching[axis]]
            start = np.broadcast_to(np.arange(places[batching[axis]]).reshape(along), places)
        if fills:
            fit &= (start >= 0) & (start <= n - size)
        start = np.clip(start, 0, max(n - size, 0))
        within = [1] * rank
        within[axis] = size
        at.append(start.reshape(*places, *[1] * rank) + np.arange(size).reshape(within))
    return Windows(tuple(at), fit.reshape(*places, *[1] * rank))


def _mode(mode: Any) -> str:
    return str(getattr(mode, "name", mode))


def _filler(dtype: Any, given: Any) -> Any:
    """What stands for an element beyond the edge."""
    if given is not None:
        return given
    if dtype.kind in "fc":
        return np.nan
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max


def _gather(
    a: Array, indices: Array, dimension_numbers: Any, slice_sizes: Sequence[int], mode: Any, fill_value: Any, **how: Any
) -> Array:
    numbers = dimension_numbers
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    fills = _mode(mode) == "FILL_OR_DROP"
    windows = _windows(a.shape, indices, slice_sizes, list(numbers.start_index_map), batching, fills)
    found = a[windows.at]
    if fills:
        found = np.where(windows.fit, found, np.asarray(_filler(a.dtype, fill_value), a.dtype))
    places = indices.ndim - 1
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    found = np.squeeze(found, tuple(places + axis for axis in gone))
    return np.moveaxis(found, range(places, found.ndim), numbers.offset_dims)


def _scatter(store: Callable[[Array, tuple[Array, ...], Array], None]) -> Callable[..., Array]:
    def run(a: Array, indices: Array, updates: Array, dimension_numbers: Any, mode: Any, **how: Any) -> Array:
        numbers = dimension_numbers
        batching = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
        places = indices.ndim - 1
        given = np.moveaxis(updates, numbers.update_window_dims, range(places, updates.ndim))
        gone = sorted({*numbers.inserted_window_dims, *numbers.operand_batching_dims})
        given = np.expand_dims(given, tuple(places + axis for axis in gone))
        axes = list(numbers.scatter_dims_to_operand_dims)
        windows = _windows(a.shape, indices, given.shape[places:], axes, batching, _mode(mode) != "CLIP")
        *at, fit = np.broadcast_arrays(*windows.at, windows.fit)
        whole = a.copy()
        store(whole, tuple(one[fit] for one in at), given[fit])
        return whole

    return run


def _set(whole: Array, at: tuple[Array, ...], given: Array) -> None:
    whole[at] = given


RULES: dict[str, Callable[..., Array]] = {
    "gather": _gather,
    "scatter": _scatter(_set),
    "scatter-add": _scatter(np.add.at),
    "scatter-max": _scatter(np.maximum.at),
    "scatter-min": _scatter(np.minimum.at),
    "scatter-mul": _scatter(np.multiply.at),
}
