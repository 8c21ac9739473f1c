"""The few array operations the layers above need, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core import room
from wrt._core.index import Positions, Shape
from wrt._core.numbers import larger, weighted_columns
from wrt._core.pattern import Compression
from wrt._core.protocol import Marks
from wrt._core.value import Value

Array = npt.NDArray[Any]
DIFFERENCES = 1e-10
"""Central differences have about ten digits, whatever the type has."""


class NumpyArrays:
    """Stateless; also the plainest statement of what each operation means."""

    def zeros(self, shape: Shape, like: Value) -> Array:
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

    def permute(self, array: Array, order: Sequence[int]) -> Array:
        return array.transpose(order)

    def take(self, array: Array, positions: Positions, axis: int) -> Array:
        return np.take(array, positions, axis)

    def concat(self, arrays: Sequence[Array], axis: int) -> Array:
        return np.concatenate(list(arrays), axis)

    def place_passes(self, shape: Shape, compression: Compression, values: Array, like: Value) -> None:
        return None

    def scatter(self, shape: Shape, positions: Positions, values: Array, like: Value) -> Array:
        flat = np.zeros(math.prod(shape), like.dtype)
        flat[positions] = values.reshape(-1)
        return flat.reshape(shape)

    def strided(self, shape: Shape, values: Array, start: int, strides: Shape) -> Array:
        flat = np.zeros(math.prod(shape), values.dtype)
        if values.size:
            steps = [step * flat.itemsize for step in strides]
            last = start + sum(step * (length - 1) for step, length in zip(strides, values.shape, strict=True))
            assert 0 <= start <= last < flat.size, "NumPy does not look where it writes"
            np.lib.stride_tricks.as_strided(flat[start:], values.shape, steps)[...] = values
        return flat.reshape(shape)

    def sheet(self, shape: Shape, like: Value) -> NumpySheet:
        return NumpySheet(np.zeros(shape, like.dtype))

    def total(self, array: Array, axis: int) -> Array:
        return np.asarray(array.sum(axis))

    def matmul(self, a: Array, b: Array) -> Array:
        return np.asarray(a @ b)

    def contract(self, equation: str, a: Array, b: Array) -> Array:
        return np.asarray(np.einsum(equation, a, b))

    def add_to_diagonal(self, array: Array, number: float) -> Array:
        return np.asarray(array + np.asarray(number * np.eye(len(array)), array.dtype))

    def abs(self, array: Array) -> Array:
        return np.asarray(np.abs(array))

    def largest(self, array: Array) -> float:
        return float(array.max()) if array.size else 0.0

    def weighted_columns(self, weights: Array, array: Array, norms: Array | None = None) -> tuple[Array, Array]:
        return weighted_columns(weights, array, norms)

    def nonzero(self, array: Array, rounding: float) -> Marks:
        return np.asarray(larger(array, rounding))

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

    def itemsize(self, value: Value) -> int:
        return int(np.dtype(value.dtype).itemsize)

    def precision(self, value: Value) -> float:
        return max(DIFFERENCES, float(np.finfo(value.dtype).eps))

    def is_complex(self, value: Value) -> bool:
        return bool(np.issubdtype(value.dtype, np.complexfloating))

    def accelerated(self, value: Value) -> bool:
        return False

    def free_memory(self, value: Value) -> int:
        return room.available()


class NumpySheet:
    """Written in place."""

    def __init__(self, memory: Array) -> None:
        self._memory = memory

    def write(self, start: int, block: Array, *, columns: bool) -> None:
        if columns:
            self._memory[:, start : start + len(block)] = block.T
        else:
            self._memory[start : start + len(block)] = block

    def array(self) -> Array:
        return self._memory
