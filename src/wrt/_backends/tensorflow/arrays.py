"""The few array operations the layers above need, on TensorFlow tensors; none of them is seen by a tape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._core import room
from wrt._core.index import Positions, Shape
from wrt._core.numbers import TF32_ROUNDING, aligned_zeros, larger, weighted_columns
from wrt._core.pattern import Compression
from wrt._core.protocol import Marks, Numbers
from wrt._core.value import Value

Tensor = Any
Method = TypeVar("Method", bound=Callable[..., Any])
HALF = {tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11}
"""Roundings of half precision: half of what the last bit is worth, since few are left to see a fault in."""


def off_tapes(method: Method) -> Method:
    """Keep an operation of ours off the tapes of the user and out of an open recording."""

    @wraps(method)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        with compat.off_tapes():
            return method(*arguments, **keywords)

    return wrapped  # type: ignore[return-value]


class TensorFlowArrays:
    """Stateless; every tensor is made in the dtype of the Value it is for."""

    @off_tapes
    def zeros(self, shape: Shape, like: Value) -> Tensor:
        return tf.zeros(shape, like.dtype)

    @off_tapes
    def one_hot(self, value: Value, positions: Positions) -> Tensor:
        seeds = tf.one_hot(np.array(positions), value.size, dtype=value.dtype)
        return tf.reshape(seeds, (len(positions), *value.shape))

    @off_tapes
    def spread(self, value: Value, positions: Positions, weights: Tensor) -> Tensor:
        flat = self._spread(value.size, positions, tf.cast(weights, value.dtype))
        return tf.reshape(flat, (weights.shape[0], *value.shape))

    @off_tapes
    def spread_pairs(self, value: Value, positions: Positions, weights: Tensor) -> Tensor:
        flat = self._spread(2 * value.size, positions, tf.cast(weights, value.dtype.real_dtype))
        parts = tf.reshape(flat, (weights.shape[0], *value.shape, 2))
        return tf.complex(parts[..., 0], parts[..., 1])

    @staticmethod
    def _spread(size: int, positions: Positions, weights: Tensor) -> Tensor:
        columns = tf.transpose(weights)  # (positions, k)
        shape = (size, weights.shape[0])
        return tf.transpose(tf.scatter_nd(np.array(positions)[:, None], columns, shape))  # a position may come twice

    @off_tapes
    def from_numpy(self, array: npt.NDArray[Any], like: Value) -> Tensor:
        return tf.cast(tf.convert_to_tensor(np.array(array)), like.dtype)

    @off_tapes
    def native(self, given: Any, like: Value) -> Tensor:
        if hasattr(given, "detach"):  # a torch tensor, perhaps on a device
            given = given.detach().cpu()
        made = given if isinstance(given, (tf.Tensor, tf.Variable)) else np.asarray(given)
        made = tf.convert_to_tensor(made)
        narrower = made.dtype.is_complex and not like.dtype.is_complex
        return made if narrower else tf.cast(made, like.dtype)

    @off_tapes
    def numpy(self, array: Tensor) -> npt.NDArray[Any]:
        if array.dtype == tf.bfloat16:  # NumPy has no such type; float32 holds every bfloat16 exactly
            array = tf.cast(array, tf.float32)
        return np.asarray(array.numpy())  # a copy: what anybody writes to it is not written to the tensor

    def shape(self, array: Tensor) -> Shape:
        return tuple(array.shape)

    @off_tapes
    def reshape(self, array: Tensor, shape: Shape) -> Tensor:
        return array if tuple(array.shape) == shape else tf.reshape(array, shape)

    @off_tapes
    def transpose(self, array: Tensor) -> Tensor:
        return tf.linalg.matrix_transpose(array)

    @off_tapes
    def permute(self, array: Tensor, order: Sequence[int]) -> Tensor:
        return tf.transpose(array, list(order))

    @off_tapes
    def take(self, array: Tensor, positions: Positions, axis: int) -> Tensor:
        return tf.gather(array, np.array(positions), axis=axis)

    @off_tapes
    def concat(self, arrays: Sequence[Tensor], axis: int) -> Tensor:
        return arrays[0] if len(arrays) == 1 else tf.concat(list(arrays), axis)

    def place_passes(self, shape: Shape, compression: Compression, values: Tensor, like: Value) -> None:
        return None

    @off_tapes
    def scatter(self, shape: Shape, positions: Positions, values: Tensor, like: Value) -> Tensor:
        flat = aligned_zeros((math.prod(shape),), like.dtype.as_numpy_dtype)
        flat[positions] = _numbers(tf.cast(values, like.dtype)).reshape(-1)
        return _take_over(flat.reshape(shape))

    @off_tapes
    def strided(self, shape: Shape, values: Tensor, start: int, strides: Shape) -> Tensor:
        flat = aligned_zeros((math.prod(shape),), values.dtype.as_numpy_dtype)
        steps = [step * flat.itemsize for step in strides]
        if math.prod(values.shape):
            last = start + sum(step * (length - 1) for step, length in zip(strides, values.shape, strict=True))
            assert 0 <= start <= last < flat.size, "NumPy does not look where it writes"
            np.lib.stride_tricks.as_strided(flat[start:], values.shape, steps)[...] = _numbers(values)
        return _take_over(flat.reshape(shape))

    def sheet(self, shape: Shape, like: Value) -> TensorFlowSheet:
        return TensorFlowSheet(shape, like.dtype)

    @off_tapes
    def total(self, array: Tensor, axis: int) -> Tensor:
        return tf.reduce_sum(array, axis)

    @off_tapes
    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return tf.matmul(a, b)

    @off_tapes
    def contract(self, equation: str, a: Tensor, b: Tensor) -> Tensor:
        return tf.einsum(equation, a, b)

    @off_tapes
    def add_to_diagonal(self, array: Tensor, number: float) -> Tensor:
        diagonal = tf.linalg.diag_part(array)
        return tf.linalg.set_diag(array, diagonal + tf.cast(number, array.dtype))

    @off_tapes
    def abs(self, array: Tensor) -> Tensor:
        return tf.abs(array)

    @off_tapes
    def largest(self, array: Tensor) -> float:
        return float(tf.reduce_max(array)) if array.shape.num_elements() else 0.0

    @off_tapes
    def weighted_columns(self, weights: Numbers, array: Tensor, norms: Numbers | None = None) -> tuple[Numbers, Numbers]:
        return weighted_columns(weights, _numbers(tf.cast(array, tf.float32) if array.dtype == tf.bfloat16 else array), norms)

    @off_tapes
    def nonzero(self, array: Tensor, rounding: float) -> Marks:
        return np.asarray(larger(self.numpy(array), rounding))

    @off_tapes
    def all_finite(self, array: Tensor) -> bool:
        return bool(tf.reduce_all(_finite(array)))

    @off_tapes
    def place(self, target: Tensor, at: tuple[Any, ...], source: Tensor) -> Tensor:
        shape = tuple(target.shape)
        spots = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)[at]
        values = tf.reshape(tf.broadcast_to(tf.cast(source, target.dtype), spots.shape), (-1,))
        flat = tf.reshape(target, (-1,))
        return tf.reshape(tf.tensor_scatter_nd_update(flat, spots.reshape(-1, 1), values), shape)

    @off_tapes
    def pairs(self, array: Tensor) -> Tensor:
        return tf.stack([tf.math.real(array), tf.math.imag(array)], -1)

    @off_tapes
    def conjugate(self, array: Tensor) -> Tensor:
        return tf.math.conj(array)

    @off_tapes
    def times_i(self, array: Tensor) -> Tensor:
        return array * tf.constant(1j, array.dtype)

    @off_tapes
    def complex(self, real: Tensor, imaginary: Tensor) -> Tensor:
        return tf.complex(real, imaginary)

    @off_tapes
    def cast(self, array: Tensor, like: Value) -> Tensor:
        return tf.cast(array, like.dtype)

    @off_tapes
    def cast_like(self, array: Tensor, like: Tensor) -> Tensor:
        return tf.cast(array, like.dtype)

    @off_tapes
    def isfinite(self, array: Tensor) -> npt.NDArray[np.bool_]:
        result: npt.NDArray[np.bool_] = _finite(array).numpy()
        return result

    def itemsize(self, value: Value) -> int:
        size: int = value.dtype.size
        return size

    def precision(self, value: Value) -> float:
        if value.dtype in HALF:
            return HALF[value.dtype]
        if value.dtype == tf.float32 and self.accelerated(value) and tf.config.experimental.tensor_float_32_execution_enabled():
            return TF32_ROUNDING
        return float(np.finfo(value.dtype.as_numpy_dtype).eps)

    def is_complex(self, value: Value) -> bool:
        return bool(value.dtype.is_complex)

    def accelerated(self, value: Value) -> bool:
        device: str = value.key.tensor.device
        return "GPU" in device or "TPU" in device

    def free_memory(self, value: Value) -> int:
        return room.available()


class TensorFlowSheet:
    """NumPy's memory, which TensorFlow takes over in the end; a single block that is everything needs none of it."""

    def __init__(self, shape: Shape, dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype
        self._all: Tensor = None
        self._memory: npt.NDArray[Any] | None = None

    @off_tapes
    def write(self, start: int, block: Tensor, *, columns: bool) -> None:
        block = tf.cast(block, self.dtype)
        count, size = block.shape[0], math.prod(block.shape)
        if size == math.prod(self.shape):
            self._all = tf.transpose(block) if columns else block
            return
        if self._memory is None:
            self._memory = aligned_zeros(self.shape, self.dtype.as_numpy_dtype)
        if columns:
            self._memory[:, start : start + count] = _numbers(block).T
        else:
            self._memory[start : start + count] = _numbers(block)

    @off_tapes
    def array(self) -> Tensor:
        if self._all is not None:
            return tf.reshape(self._all, self.shape)
        return tf.zeros(self.shape, self.dtype) if self._memory is None else _take_over(self._memory)


def _numbers(tensor: Tensor) -> npt.NDArray[Any]:
    """A look at a tensor's memory, without a copy where it is NumPy's kind of memory; nobody may write there."""
    return np.asarray(tensor)


def _take_over(memory: npt.NDArray[Any]) -> Tensor:
    """NumPy's memory as a tensor, without a copy where DLPack can; nobody may write to it any more."""
    if tf.config.list_physical_devices("GPU"):
        return tf.convert_to_tensor(memory)
    try:
        return tf.experimental.dlpack.from_dlpack(memory.__dlpack__())
    except (BufferError, TypeError, RuntimeError):  # a type that DLPack does not know
        return tf.convert_to_tensor(memory)


def _finite(array: Tensor) -> Tensor:
    if array.dtype.is_complex:
        return tf.math.is_finite(tf.math.real(array)) & tf.math.is_finite(tf.math.imag(array))
    return tf.math.is_finite(array)
