"""The array operations the layers above need, on JAX arrays, and on tracers: a plan may run inside `jit`.

JAX compiles every operation outside `jit` for every shape, which takes tens of milliseconds. So numbers that lie in the
memory NumPy sees are moved by NumPy, which gives the same bits; whatever is computed is computed by JAX.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from wrt._backends.jax import compat
from wrt._backends.jax.thresholds import SMALL_NUMBERS
from wrt._core import room
from wrt._core.index import Positions, Shape
from wrt._core.numbers import TF32_ROUNDING, aligned_zeros, larger, weighted_columns
from wrt._core.pattern import Compression
from wrt._core.protocol import Marks, Numbers, Sheet
from wrt._core.value import Value

Array = Any
FULL_PRODUCTS = frozenset({"highest", "float32", "F32_F32_F32", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9"})
"""Settings of `jax_default_matmul_precision` with which nothing is rounded before it is multiplied."""


# ---------------------------------------------------------------- seeds


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, slots=True)
class OneHot:
    """(k, *inner) with a one at each of k flat positions; written out inside the program that uses it."""

    positions: Any
    inner: Shape
    dtype: Any

    @property
    def shape(self) -> Shape:
        return (len(self.positions), *self.inner)

    @property
    def ndim(self) -> int:
        return 1 + len(self.inner)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        whole = np.zeros((len(self.positions), math.prod(self.inner)), self.dtype if dtype is None else dtype)
        whole[np.arange(len(self.positions)), self.positions] = 1
        return whole.reshape(self.shape)

    def tree_flatten(self) -> tuple[tuple[Any], tuple[Shape, Any]]:
        return (self.positions,), (self.inner, self.dtype)

    @classmethod
    def tree_unflatten(cls, known: tuple[Shape, Any], positions: tuple[Any]) -> OneHot:
        return cls(*positions, *known)


def written_out(seed: Any) -> Any:
    """One seed of a batch, inside a program: an array, or a single position of a OneHot.

    Behind a barrier: a compiler that knows of the zeros leaves out 0 x inf here and not there.
    """
    if not isinstance(seed, OneHot):
        return seed
    ones = (jnp.arange(math.prod(seed.inner)) == seed.positions).astype(seed.dtype)
    return jax.lax.optimization_barrier(ones.reshape(seed.inner))


def native(array: Any) -> Any:
    """As an array that operations of JAX take."""
    return np.asarray(array) if isinstance(array, OneHot) else array


# ---------------------------------------------------------------- where numbers lie


def on_cpu() -> bool:
    """Whether arrays of JAX lie in the memory NumPy sees, where looking at them costs nothing."""
    return jax.default_backend() == "cpu"


def seen(array: Any) -> npt.NDArray[Any] | None:
    """The numbers where NumPy sees them without a copy; None where they lie elsewhere, or are being traced."""
    if isinstance(array, (np.ndarray, OneHot)):
        return np.asarray(array)
    if isinstance(array, compat.Tracer) or not on_cpu() or not compat.at_home(array):
        return None
    return np.asarray(array)


def all_seen(arrays: Sequence[Any]) -> list[npt.NDArray[Any]] | None:
    found = [seen(array) for array in arrays]
    return None if any(one is None for one in found) else found  # type: ignore[return-value]


def sent(numbers: npt.NDArray[Any]) -> Array:
    """NumPy's numbers as an array of JAX, without a copy where it can be: nobody may write to them any more."""
    with compat.width(compat.X64.value or numbers.dtype.char in "dD"):  # as they are, also where 64 bits are switched off
        return jax.device_put(np.asarray(numbers, order="C"), may_alias=True)


# ---------------------------------------------------------------- compiled, one program each

_reshape = jax.jit(jnp.reshape, static_argnums=1)
_permute = jax.jit(jnp.transpose, static_argnums=1)
_take = jax.jit(partial(jnp.take, mode="clip"), static_argnums=2)
_concat = jax.jit(lambda arrays, axis: jnp.concatenate(arrays, axis), static_argnums=1)
_matmul = jax.jit(partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST))
_contract = jax.jit(partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST), static_argnums=0)
_total = jax.jit(jnp.sum, static_argnums=1)
_abs = jax.jit(jnp.abs)
_all_finite = jax.jit(lambda array: jnp.isfinite(array).all())
_isfinite = jax.jit(jnp.isfinite)
_pairs = jax.jit(lambda array: jnp.stack([array.real, array.imag], axis=-1))
_from_pairs = jax.jit(lambda pairs: jax.lax.complex(pairs[..., 0], pairs[..., 1]))
_complex = jax.jit(jax.lax.complex)
_times_i = jax.jit(lambda array: array * jnp.asarray(1j, array.dtype))
_conjugate = jax.jit(jnp.conj)
_cast = jax.jit(lambda array, dtype: array.astype(dtype), static_argnums=1)
_add_to_diagonal = jax.jit(lambda array, number: array + (number * jnp.eye(array.shape[0], array.shape[1])).astype(array.dtype))


@partial(jax.jit, static_argnums=(0, 1))
def _scatter(shape: Shape, dtype: Any, index: Array, values: Array) -> Array:
    flat = jnp.zeros(math.prod(shape), dtype).at[index.reshape(-1)]
    return flat.set(values.reshape(-1).astype(dtype), unique_indices=True, mode="promise_in_bounds").reshape(shape)


@partial(jax.jit, static_argnums=(0, 1))
def _spread(width: int, dtype: Any, positions: Array, weights: Array) -> Array:
    return jnp.zeros((weights.shape[0], width), dtype).at[:, positions].add(weights.astype(dtype))


@jax.jit
def _weighted(weights: Array, array: Array) -> tuple[Array, Array]:
    wide = array.astype(jnp.result_type(array.dtype, jnp.float64))
    norms = jnp.sqrt((wide.real**2 + wide.imag**2 if jnp.iscomplexobj(wide) else wide**2).sum(0))
    return jnp.matmul(weights, wide, precision=jax.lax.Precision.HIGHEST), norms


_nonzero = jax.jit(partial(larger, numpy=jnp))


@cache
def _itemsize(dtype: Any) -> int:
    return int(np.dtype(dtype).itemsize)


@cache
def _precision(dtype: Any, products: float) -> float:
    """Of half precision, half of what the last bit is worth: few are left to see a fault in."""
    found = jnp.finfo(dtype)
    eps = float(found.eps) / (2 if found.bits == 16 else 1)
    return max(eps, products) if np.dtype(dtype) in (np.float32, np.complex64) else eps


@cache
def _is_complex(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.complexfloating))


class JaxArrays:
    """Stateless; every array is made in the dtype of the Value it is for."""

    # ---------------------------------------------------------------- making

    def zeros(self, shape: Shape, like: Value) -> Array:
        return sent(aligned_zeros(shape, like.dtype)) if on_cpu() else jnp.zeros(shape, like.dtype)

    def one_hot(self, value: Value, positions: Positions) -> Array:
        return OneHot(np.asarray(positions), value.shape, np.dtype(value.dtype))

    def spread(self, value: Value, positions: Positions, weights: Array) -> Array:
        flat = self._spread(value.size, np.dtype(value.dtype), positions, weights)
        return self.reshape(flat, (weights.shape[0], *value.shape))

    def spread_pairs(self, value: Value, positions: Positions, weights: Array) -> Array:
        real = np.zeros((), value.dtype).real.dtype
        pairs = self._spread(2 * value.size, real, positions, weights)
        return _from_pairs(self.reshape(pairs, (weights.shape[0], *value.shape, 2)))

    def _spread(self, width: int, dtype: Any, positions: Positions, weights: Array) -> Array:
        given, at = seen(weights), np.asarray(positions)
        if given is None or len(np.unique(at)) < len(at):  # a sum is computed by JAX
            return _spread(width, dtype, at, weights)
        whole = aligned_zeros((len(given), width), dtype)
        whole[:, at] = given
        return sent(whole)

    def from_numpy(self, array: Numbers, like: Value) -> Array:
        return sent(np.asarray(array).astype(like.dtype))

    def native(self, given: Any, like: Value) -> Array:
        made = given if isinstance(given, jax.Array) else np.asarray(given)
        wider = _is_complex(like.dtype) or not jnp.issubdtype(made.dtype, jnp.complexfloating)
        return jnp.asarray(made, like.dtype if wider else None)

    def numpy(self, array: Array) -> Numbers:
        return np.asarray(array)

    # ---------------------------------------------------------------- moving

    def shape(self, array: Array) -> Shape:
        return tuple(array.shape)

    def reshape(self, array: Array, shape: Shape) -> Array:
        same = len(shape) == array.ndim and all(n in (-1, had) for n, had in zip(shape, array.shape, strict=True))
        if same and not isinstance(array, np.ndarray):
            return array
        numbers = seen(array) if isinstance(array, np.ndarray) or array.size > SMALL_NUMBERS else None
        return _reshape(array, tuple(shape)) if numbers is None else sent(numbers.reshape(shape))

    def transpose(self, array: Array) -> Array:
        return self.permute(array, (1, 0))

    def permute(self, array: Array, order: Sequence[int]) -> Array:
        numbers = seen(array)
        return _permute(array, tuple(order)) if numbers is None else sent(numbers.transpose(order))

    def take(self, array: Array, positions: Positions, axis: int) -> Array:
        numbers = seen(array)
        return _take(array, np.asarray(positions), axis) if numbers is None else sent(np.take(numbers, positions, axis))

    def concat(self, arrays: Sequence[Array], axis: int) -> Array:
        if len(arrays) == 1:
            return arrays[0]
        numbers = all_seen(arrays)
        return _concat(list(map(native, arrays)), axis) if numbers is None else sent(np.concatenate(numbers, axis))

    def place_passes(self, shape: Shape, compression: Compression, values: Array, like: Value) -> None:
        return None

    def scatter(self, shape: Shape, positions: Positions, values: Array, like: Value) -> Array:
        numbers, dtype = seen(values), np.dtype(like.dtype)
        if numbers is None:
            return _scatter(tuple(shape), dtype, np.asarray(positions), values)
        whole = aligned_zeros(shape, dtype)
        whole.reshape(-1)[positions] = numbers
        return sent(whole)

    def strided(self, shape: Shape, values: Array, start: int, strides: Shape) -> Array:
        numbers, dtype = seen(values), np.dtype(values.dtype)
        if numbers is None:
            axes = [step * np.arange(length) for step, length in zip(strides, values.shape, strict=True)]
            places = start + sum(np.meshgrid(*axes, indexing="ij")) if axes else np.asarray(start)
            return _scatter(tuple(shape), dtype, places, values)
        whole = aligned_zeros(shape, dtype)
        steps = tuple(step * dtype.itemsize for step in strides)
        np.lib.stride_tricks.as_strided(whole.reshape(-1)[start:], numbers.shape, steps)[...] = numbers
        return sent(whole)

    def place(self, target: Array, at: tuple[Any, ...], source: Array) -> Array:
        both = all_seen((target, source))
        if both is None:
            return jnp.asarray(target).at[at].set(native(source))
        whole = aligned_zeros(both[0].shape, both[0].dtype)
        whole[...] = both[0]
        whole[at] = both[1]
        return sent(whole)

    def sheet(self, shape: Shape, like: Value) -> Sheet:
        return JaxSheet(self, shape, like)

    # ---------------------------------------------------------------- computing

    def total(self, array: Array, axis: int) -> Array:
        return _total(native(array), axis)

    def matmul(self, a: Array, b: Array) -> Array:
        return _matmul(native(a), native(b))

    def contract(self, equation: str, a: Array, b: Array) -> Array:
        return _contract(equation, native(a), native(b))

    def add_to_diagonal(self, array: Array, number: float) -> Array:
        return _add_to_diagonal(array, number)

    def abs(self, array: Array) -> Array:
        return _abs(native(array))

    def pairs(self, array: Array) -> Array:
        return _pairs(array)

    def conjugate(self, array: Array) -> Array:
        return array if isinstance(array, OneHot) else _conjugate(array)  # ones are real

    def times_i(self, array: Array) -> Array:
        return _times_i(native(array))

    def complex(self, real: Array, imaginary: Array) -> Array:
        return _complex(native(real), native(imaginary))

    def cast(self, array: Array, like: Value) -> Array:
        return self._as_dtype(native(array), np.dtype(like.dtype))

    def cast_like(self, array: Array, like: Array) -> Array:
        return self._as_dtype(array, np.dtype(like.dtype))

    def _as_dtype(self, array: Array, dtype: Any) -> Array:
        return array if array.dtype == dtype else _cast(array, dtype)

    # ---------------------------------------------------------------- judging

    def largest(self, array: Array) -> float:
        return float(np.max(np.asarray(array, np.float64))) if array.size else 0.0

    def weighted_columns(self, weights: Numbers, array: Array, norms: Numbers | None = None) -> tuple[Numbers, Numbers]:
        numbers = seen(array)
        if numbers is None:
            with compat.width(True):
                sums, found = _weighted(np.asarray(weights), array)
            return np.asarray(sums), np.asarray(found)
        return weighted_columns(weights, numbers, norms)

    def nonzero(self, array: Array, rounding: float) -> Marks:
        numbers = seen(array)
        if numbers is None:
            return np.asarray(_nonzero(array, rounding))
        half = numbers.dtype.kind == "V" or numbers.dtype == np.float16
        return larger(numbers.astype(np.float32) if half else numbers, rounding)

    def all_finite(self, array: Array) -> bool:
        numbers = seen(array)
        if numbers is None:
            return bool(_all_finite(array))  # one number comes back from the device, not all of them
        with np.errstate(all="ignore"):
            if numbers.dtype.char in "fd" and math.isfinite(np.vdot(numbers, numbers)):
                return True  # one product tells of most arrays; a large one may run over
            return bool(np.isfinite(numbers).all())

    def isfinite(self, array: Array) -> Marks:
        numbers = seen(array)
        return np.asarray(_isfinite(array)) if numbers is None else np.asarray(np.isfinite(numbers))

    # ---------------------------------------------------------------- knowing

    def itemsize(self, value: Value) -> int:
        return _itemsize(value.dtype)

    def precision(self, value: Value) -> float:
        return _precision(value.dtype, 0.0 if on_cpu() else _rounding_of_products(jax.config.jax_default_matmul_precision))

    def is_complex(self, value: Value) -> bool:
        return _is_complex(value.dtype)

    def accelerated(self, value: Value) -> bool:
        return not on_cpu()

    def free_memory(self, value: Value) -> int:
        device = jax.devices()[0]
        known = device.memory_stats() if device.platform != "cpu" else None
        if known and "bytes_limit" in known:
            return int(known["bytes_limit"] - known.get("bytes_in_use", 0))
        return room.available()


class JaxSheet:
    """Blocks of rows or of columns, joined once."""

    def __init__(self, arrays: JaxArrays, shape: Shape, like: Value) -> None:
        self._arrays, self._shape, self._like = arrays, shape, like
        self._blocks: dict[bool, dict[int, Array]] = {False: {}, True: {}}

    def write(self, start: int, block: Array, *, columns: bool) -> None:
        self._blocks[columns][start] = self._arrays.cast(block, self._like)

    def array(self) -> Array:
        rows, columns = self._joined(columns=False), self._joined(columns=True)
        if rows is None:
            return self._arrays.zeros(self._shape, self._like) if columns is None else self._arrays.transpose(columns)
        assert columns is None, "lines of one sheet are all rows or all columns"
        return rows

    def _joined(self, *, columns: bool) -> Array | None:
        blocks = self._blocks[columns]
        return self._arrays.concat([blocks[start] for start in sorted(blocks)], 0) if blocks else None


@cache
def _rounding_of_products(setting: str | None) -> float:
    """How an accelerator rounds float32 numbers that it multiplies: to TF32, or to bfloat16, unless the user wants more."""
    if setting in FULL_PRODUCTS:
        return 0.0
    if jax.default_backend() == "tpu" or (setting or "").startswith("BF16_BF16_F32"):
        return float(jnp.finfo(jnp.bfloat16).eps) / 2
    return TF32_ROUNDING if compat.has_tf32() else 0.0
