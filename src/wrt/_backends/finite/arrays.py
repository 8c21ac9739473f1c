"""The few array operations the layers above need, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions, Shape
from wrt._core.value import Value

Array = npt.NDArray[Any]


class NumpyArrays:
    """Stateless; also the plainest statement of what each operation means."""

    writes_in_place = True

    def zeros(self, shape: Shape, like: Value) -> Array:
        return np.zeros(shape, like.dtype)

    def zeros_like(self, shape: Shape, like: Array) -> Array:
        return np.zeros(shape, like.dtype)

    def one_hot(self, value: Value, positions: Positions) -> Array:
        seeds = np.zeros((len(positions), value.size), value.dtype)
        seeds[np.arange(len(positions)), positions] = 1
        return seeds.reshape(len(positions), *value.shape)

    def spread(self, value: Value, positions: Positions, weights: Array) -> Array:
        seeds = np.zeros((len(weights), value.size), value.dtype)
        np.add.at(seeds.T, positions, weights.T)
        return seeds.reshape(len(weights), *value.shape)

    def spread_pairs(self, value: Value, positions: Positions, weights: Array) -> Array:
        seeds = np.zeros((len(weights), 2 * value.size))
        np.add.at(seeds.T, positions, weights.T)
        pairs = seeds.reshape(len(weights), *value.shape, 2)
        return (pairs[..., 0] + 1j * pairs[..., 1]).astype(value.dtype)

    def from_numpy(self, array: Array, like: Value) -> Array:
        return np.asarray(array, like.dtype)

    def native(self, given: Any, like: Value) -> Array:
        made = np.asarray(given)
        wider = np.issubdtype(like.dtype, np.complexfloating) or not np.iscomplexobj(made)
        return made.astype(like.dtype) if wider else made

    def numpy(self, array: Array) -> Array:
        return np.asarray(array)

    def shape(self, array: Array) -> Shape:
        return tuple(array.shape)

    def reshape(self, array: Array, shape: Shape) -> Array:
        return array.reshape(shape)

    def transpose(self, array: Array) -> Array:
        return array.T

    def take(self, array: Array, positions: Positions, axis: int) -> Array:
        return np.take(array, positions, axis)

    def concat(self, arrays: Sequence[Array], axis: int) -> Array:
        return np.concatenate(list(arrays), axis)

    def index(self, positions: Positions, like: Value) -> Array:
        return positions

    def only(self, array: Array, mask: Array) -> Array:
        return np.where(mask, array, 0)

    def gather(self, array: Array, index: Array) -> Array:
        return np.take(array, index)

    def scatter(self, shape: Shape, index: Array, values: Array, like: Value) -> Array:
        flat = np.zeros(int(np.prod(shape)), like.dtype)
        flat[index] = values
        return flat.reshape(shape)

    def sum_at(self, size: int, index: Array, values: Array) -> Array:
        summed = np.zeros(size, values.dtype)
        np.add.at(summed, index, values)
        return summed

    def total(self, array: Array, axis: int) -> Array:
        return np.asarray(array.sum(axis))

    def matmul(self, a: Array, b: Array) -> Array:
        return np.asarray(a @ b)

    def abs(self, array: Array) -> Array:
        return np.asarray(np.abs(array))

    def largest(self, array: Array) -> float:
        return float(array.max()) if array.size else 0.0

    def maxima(self, *arrays: Array) -> list[float]:
        return [self.largest(array) for array in arrays]

    def all_finite(self, array: Array) -> bool:
        return bool(np.isfinite(array).all())

    def place(self, target: Array, at: tuple[Any, ...], source: Array) -> Array:
        target[at] = source
        return target

    def pairs(self, array: Array) -> Array:
        return np.stack([array.real, array.imag], -1)

    def conjugate(self, array: Array) -> Array:
        return np.conj(array)

    def times_i(self, array: Array) -> Array:
        return array * 1j

    def complex(self, real: Array, imaginary: Array) -> Array:
        return real + 1j * imaginary

    def cast(self, array: Array, like: Value) -> Array:
        return array.astype(like.dtype)

    def cast_like(self, array: Array, like: Array) -> Array:
        return array.astype(like.dtype)

    def isfinite(self, array: Array) -> npt.NDArray[np.bool_]:
        return np.asarray(np.isfinite(array))

    def finite_only(self, *arrays: Array) -> tuple[Array, ...] | None:
        finite = np.logical_and.reduce([np.isfinite(array) for array in arrays])
        if finite.all():
            return arrays
        return tuple(array[finite] for array in arrays) if finite.any() else None

    def itemsize(self, value: Value) -> int:
        return int(np.dtype(value.dtype).itemsize)

    def precision(self, value: Value) -> float:
        return float(np.finfo(value.dtype).eps)

    def is_complex(self, value: Value) -> bool:
        return bool(np.issubdtype(value.dtype, np.complexfloating))

    def free_memory(self, value: Value) -> int:
        import psutil

        return int(psutil.virtual_memory().available)
