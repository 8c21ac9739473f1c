"""The few array operations the layers above need, on JAX arrays.

Seeds are made by NumPy: `jit` takes them as they are, where one operation of JAX would cost more than the sweep.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from wrt._backends.jax import compat
from wrt._backends.jax.seeds import OneHot, native, on_cpu
from wrt._core.index import Positions, Shape
from wrt._core.value import Value

Array = Any
COPIED = 2**16  # bytes that JAX may copy to give an array another shape; NumPy needs no copy


# One compiled call each: an operation of JAX outside `jit` takes five times as long to set up.
_reshape = jax.jit(jnp.reshape, static_argnums=1)
_transpose = jax.jit(jnp.transpose)
_all_finite = jax.jit(lambda array: jnp.isfinite(array).all())
_take = jax.jit(partial(jnp.take, mode="clip"), static_argnums=2)


@partial(jax.jit, static_argnums=(0, 1))
def _scatter(shape: Shape, dtype: Any, index: Array, values: Array) -> Array:
    flat = jnp.zeros(math.prod(shape), dtype).at[index]
    return flat.set(values.astype(dtype), unique_indices=True, mode="promise_in_bounds").reshape(shape)


@cache
def _itemsize(dtype: Any) -> int:
    return int(np.dtype(dtype).itemsize)


@cache
def _precision(dtype: Any) -> float:
    return float(jnp.finfo(dtype).eps)


@cache
def _is_complex(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.complexfloating))


def _has_only_finite(array: npt.NDArray[Any]) -> bool:
    """One product tells of most arrays: it is finite only where all of them are. A large one may run over."""
    if array.dtype.char in "fd" and math.isfinite(np.vdot(array, array)):
        return True
    return bool(np.isfinite(array).all())


class JaxArrays:
    """Stateless; every array is made in the dtype of the Value it is for."""

    writes_in_place = False

    def zeros(self, shape: Shape, like: Value) -> Array:
        return jnp.zeros(shape, like.dtype)

    def zeros_like(self, shape: Shape, like: Array) -> Array:
        return jnp.zeros(shape, like.dtype)

    def can_adopt(self) -> bool:
        return bool(on_cpu())

    def adopt(self, buffer: npt.NDArray[Any]) -> Array:
        """NumPy's memory as an array, without a copy; nobody may write to it any more."""
        return jax.device_put(buffer, may_alias=True)

    def one_hot(self, value: Value, positions: Positions) -> Array:
        return OneHot(positions, value.shape, np.dtype(value.dtype))

    def spread(self, value: Value, positions: Positions, weights: Array) -> Array:
        count = weights.shape[0]
        if not on_cpu():
            there = jnp.zeros((count, value.size), value.dtype).at[:, np.asarray(positions)]
            return there.add(jnp.asarray(weights).astype(value.dtype)).reshape(count, *value.shape)
        seeds = np.zeros((count, value.size), value.dtype)
        np.add.at(seeds.T, np.asarray(positions), np.asarray(weights).astype(value.dtype).T)
        return seeds.reshape(count, *value.shape)

    def spread_pairs(self, value: Value, positions: Positions, weights: Array) -> Array:
        count = weights.shape[0]
        real = np.zeros((), value.dtype).real.dtype
        seeds = jnp.zeros((count, 2 * value.size), real)
        seeds = seeds.at[:, np.asarray(positions)].add(jnp.asarray(weights).astype(real))
        seeds = seeds.reshape(count, *value.shape, 2)
        return jax.lax.complex(seeds[..., 0], seeds[..., 1])

    def from_numpy(self, array: npt.NDArray[Any], like: Value) -> Array:
        made = np.asarray(array).astype(like.dtype)
        return made if on_cpu() else jnp.asarray(made)

    def native(self, given: Any, like: Value) -> Array:
        made = given if isinstance(given, jax.Array) else np.asarray(given)
        wider = jnp.issubdtype(like.dtype, jnp.complexfloating) or not jnp.issubdtype(made.dtype, jnp.complexfloating)
        return jnp.asarray(made, like.dtype if wider else None)

    def numpy(self, array: Array) -> npt.NDArray[Any]:
        return np.asarray(array)

    def shape(self, array: Array) -> Shape:
        return tuple(array.shape)

    def reshape(self, array: Array, shape: Shape) -> Array:
        if isinstance(array, np.ndarray):  # what the user gets is an array of JAX, whatever it was computed with
            return jax.device_put(array.reshape(shape))
        same = len(shape) == array.ndim and all(n in (-1, had) for n, had in zip(shape, array.shape, strict=True))
        if same:
            return array
        if array.nbytes > COPIED and on_cpu() and compat.at_home(array):
            return jax.device_put(np.asarray(array).reshape(shape), may_alias=True)
        return _reshape(array, tuple(shape))

    def transpose(self, array: Array) -> Array:
        return array.T if isinstance(array, np.ndarray) else _transpose(array)

    def take(self, array: Array, positions: Positions, axis: int) -> Array:
        return _take(array, np.asarray(positions), axis)

    def concat(self, arrays: Sequence[Array], axis: int) -> Array:
        if len(arrays) == 1:
            return arrays[0]
        whole = [native(array) for array in arrays]
        if all(isinstance(array, np.ndarray) for array in whole):
            return np.concatenate(whole, axis)
        return jnp.concatenate(whole, axis)

    def index(self, positions: Positions, like: Value) -> Array:
        return np.asarray(positions)

    def only(self, array: Array, mask: Array) -> Array:
        return jnp.where(mask, array, 0)

    def gather(self, array: Array, index: Array) -> Array:
        return _take(array, index, None)

    def scatter(self, shape: Shape, index: Array, values: Array, like: Value) -> Array:
        return _scatter(tuple(shape), np.dtype(like.dtype), index, values)

    def sum_at(self, size: int, index: Array, values: Array) -> Array:
        if not on_cpu():
            return jnp.zeros(size, values.dtype).at[index].add(values)
        summed = np.zeros(size, values.dtype)
        np.add.at(summed, np.asarray(index), np.asarray(values))
        return summed

    def total(self, array: Array, axis: int) -> Array:
        return jnp.sum(array, axis=axis)

    def matmul(self, a: Array, b: Array) -> Array:
        if on_cpu():
            return np.matmul(np.asarray(a), np.asarray(b))
        return jnp.matmul(a, b, precision="highest")

    def abs(self, array: Array) -> Array:
        return np.abs(np.asarray(array)) if on_cpu() else jnp.abs(array)

    def largest(self, array: Array) -> float:
        return float(np.max(np.asarray(array, np.float64))) if array.size else 0.0

    def maxima(self, *arrays: Array) -> list[float]:
        return [self.largest(array) for array in arrays]

    def all_finite(self, array: Array) -> bool:
        if isinstance(array, np.ndarray) or on_cpu():
            return _has_only_finite(np.asarray(array))
        return bool(_all_finite(array))  # one number comes back from the device, not all of them

    def place(self, target: Array, at: tuple[Any, ...], source: Array) -> Array:
        return jnp.asarray(target).at[at].set(source)

    def pairs(self, array: Array) -> Array:
        return jnp.stack([array.real, array.imag], axis=-1)

    def conjugate(self, array: Array) -> Array:
        return array if isinstance(array, OneHot) else jnp.conj(array)  # ones are real

    def times_i(self, array: Array) -> Array:
        return native(array) * np.asarray(1j, array.dtype)

    def complex(self, real: Array, imaginary: Array) -> Array:
        return jax.lax.complex(jnp.asarray(real), jnp.asarray(imaginary))

    def cast(self, array: Array, like: Value) -> Array:
        return native(array).astype(like.dtype)

    def cast_like(self, array: Array, like: Array) -> Array:
        if isinstance(like, np.ndarray):  # what lies in NumPy's hands is compared there: nothing has to be compiled
            return np.asarray(array).astype(like.dtype, copy=False)
        return array if array.dtype == like.dtype else array.astype(like.dtype)

    def isfinite(self, array: Array) -> npt.NDArray[np.bool_]:
        result: npt.NDArray[np.bool_] = np.isfinite(np.asarray(array)) if on_cpu() else np.asarray(jnp.isfinite(array))
        return result

    def finite_only(self, *arrays: Array) -> tuple[Array, ...] | None:
        finite = np.all([self.isfinite(array) for array in arrays], axis=0)
        if finite.all():
            return arrays
        return tuple(np.asarray(array)[finite] for array in arrays) if finite.any() else None

    def itemsize(self, value: Value) -> int:
        return _itemsize(value.dtype)

    def precision(self, value: Value) -> float:
        return _precision(value.dtype)

    def is_complex(self, value: Value) -> bool:
        return _is_complex(value.dtype)

    def free_memory(self, value: Value) -> int:
        device = jax.devices()[0]
        told = device.memory_stats() if device.platform != "cpu" else None
        if told and "bytes_limit" in told:
            return int(told["bytes_limit"] - told.get("bytes_in_use", 0))
        import psutil

        return int(psutil.virtual_memory().available)
