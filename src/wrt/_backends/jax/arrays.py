"""The few array operations the layers above need, on JAX arrays.

Seeds are made by NumPy: `jit` takes them as they are, where one operation of JAX would cost more than the sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions, Shape
from wrt._core.value import Value

Array = Any


class JaxArrays:
    """Stateless; every array is made in the dtype of the Value it is for."""

    writes_in_place = False

    def zeros(self, shape: Shape, like: Value) -> Array:
        return jnp.zeros(shape, like.dtype)

    def zeros_like(self, shape: Shape, like: Array) -> Array:
        return jnp.zeros(shape, like.dtype)

    def one_hot(self, value: Value, positions: Positions) -> Array:
        seeds = np.zeros((len(positions), value.size), value.dtype)
        seeds[np.arange(len(positions)), positions] = 1
        return seeds.reshape(len(positions), *value.shape)

    def spread(self, value: Value, positions: Positions, weights: Array) -> Array:
        count = weights.shape[0]
        seeds = jnp.zeros((count, value.size), value.dtype)
        seeds = seeds.at[:, np.asarray(positions)].add(jnp.asarray(weights).astype(value.dtype))
        return seeds.reshape(count, *value.shape)

    def spread_pairs(self, value: Value, positions: Positions, weights: Array) -> Array:
        count = weights.shape[0]
        real = np.zeros((), value.dtype).real.dtype
        seeds = jnp.zeros((count, 2 * value.size), real)
        seeds = seeds.at[:, np.asarray(positions)].add(jnp.asarray(weights).astype(real))
        seeds = seeds.reshape(count, *value.shape, 2)
        return jax.lax.complex(seeds[..., 0], seeds[..., 1])

    def from_numpy(self, array: npt.NDArray[Any], like: Value) -> Array:
        return jnp.asarray(np.asarray(array).astype(like.dtype))

    def native(self, given: Any, like: Value) -> Array:
        made = given if isinstance(given, jax.Array) else np.asarray(given)
        wider = jnp.issubdtype(like.dtype, jnp.complexfloating) or not jnp.issubdtype(made.dtype, jnp.complexfloating)
        return jnp.asarray(made, like.dtype if wider else None)

    def numpy(self, array: Array) -> npt.NDArray[Any]:
        return np.asarray(array)

    def shape(self, array: Array) -> Shape:
        return tuple(array.shape)

    def reshape(self, array: Array, shape: Shape) -> Array:
        return array if tuple(array.shape) == tuple(shape) else array.reshape(shape)

    def transpose(self, array: Array) -> Array:
        return array.mT

    def take(self, array: Array, positions: Positions, axis: int) -> Array:
        return jnp.take(array, np.asarray(positions), axis=axis, mode="clip")

    def concat(self, arrays: Sequence[Array], axis: int) -> Array:
        return arrays[0] if len(arrays) == 1 else jnp.concatenate(list(arrays), axis)

    def index(self, positions: Positions, like: Value) -> Array:
        return jnp.asarray(np.asarray(positions))

    def gather(self, array: Array, index: Array) -> Array:
        return jnp.take(array, index, mode="clip")

    def scatter(self, shape: Shape, index: Array, values: Array, like: Value) -> Array:
        flat = jnp.zeros(int(np.prod(shape)), like.dtype).at[index].set(values.astype(like.dtype))
        return flat.reshape(shape)

    def total(self, array: Array, axis: int) -> Array:
        return jnp.sum(array, axis=axis)

    def matmul(self, a: Array, b: Array) -> Array:
        return jnp.matmul(a, b, precision="highest")

    def abs(self, array: Array) -> Array:
        return jnp.abs(array)

    def largest(self, array: Array) -> float:
        return float(np.max(np.asarray(array, np.float64))) if array.size else 0.0

    def all_finite(self, array: Array) -> bool:
        return bool(np.all(self.isfinite(array)))

    def place(self, target: Array, at: tuple[Any, ...], source: Array) -> Array:
        return jnp.asarray(target).at[at].set(source)

    def pairs(self, array: Array) -> Array:
        return jnp.stack([array.real, array.imag], axis=-1)

    def conjugate(self, array: Array) -> Array:
        return jnp.conj(array)

    def times_i(self, array: Array) -> Array:
        return array * 1j

    def complex(self, real: Array, imaginary: Array) -> Array:
        return jax.lax.complex(jnp.asarray(real), jnp.asarray(imaginary))

    def cast(self, array: Array, like: Value) -> Array:
        return array.astype(like.dtype)

    def cast_like(self, array: Array, like: Array) -> Array:
        return array.astype(like.dtype)

    def isfinite(self, array: Array) -> npt.NDArray[np.bool_]:
        result: npt.NDArray[np.bool_] = np.asarray(jnp.isfinite(array))
        return result

    def finite_only(self, *arrays: Array) -> tuple[Array, ...] | None:
        finite = np.all([self.isfinite(array) for array in arrays], axis=0)
        if finite.all():
            return arrays
        return tuple(np.asarray(array)[finite] for array in arrays) if finite.any() else None

    def itemsize(self, value: Value) -> int:
        return int(np.dtype(value.dtype).itemsize)

    def precision(self, value: Value) -> float:
        return float(jnp.finfo(value.dtype).eps)

    def is_complex(self, value: Value) -> bool:
        return bool(jnp.issubdtype(value.dtype, jnp.complexfloating))

    def free_memory(self, value: Value) -> int:
        device = jax.devices()[0]
        told = device.memory_stats() if device.platform != "cpu" else None
        if told and "bytes_limit" in told:
            return int(told["bytes_limit"] - told.get("bytes_in_use", 0))
        import psutil

        return int(psutil.virtual_memory().available)
