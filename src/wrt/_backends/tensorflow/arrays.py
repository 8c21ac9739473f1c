"""The few array operations the layers above need, on TensorFlow tensors; none of them is seen by a tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._core.index import Positions, Shape
from wrt._core.value import Value

Tensor = Any
SMALL = 2**16
Method = TypeVar("Method", bound=Callable[..., Any])


def unseen(method: Method) -> Method:
    """Keep an operation of ours off the tapes of the user and out of an open recording."""

    @wraps(method)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        with compat.undisturbed():
            return method(*arguments, **keywords)

    return wrapped  # type: ignore[return-value]


class TensorFlowArrays:
    """Stateless; every tensor is made in the dtype of the Value it is for."""

    writes_in_place = False

    def can_adopt(self) -> bool:
        return not tf.config.list_physical_devices("GPU")

    @unseen
    def adopt(self, buffer: npt.NDArray[Any]) -> Tensor:
        """NumPy's memory as a tensor, without a copy where DLPack knows the dtype; nobody may write to it any more."""
        try:
            return tf.experimental.dlpack.from_dlpack(buffer.__dlpack__())
        except (BufferError, TypeError, RuntimeError):
            return tf.convert_to_tensor(buffer)

    @unseen
    def zeros_like(self, shape: Shape, like: Tensor) -> Tensor:
        return tf.zeros(shape, like.dtype)

    @unseen
    def zeros(self, shape: Shape, like: Value) -> Tensor:
        return tf.zeros(shape, like.dtype)

    @unseen
    def one_hot(self, value: Value, positions: Positions) -> Tensor:
        seeds = tf.one_hot(np.array(positions), value.size, dtype=value.dtype)
        return tf.reshape(seeds, (len(positions), *value.shape))

    @unseen
    def spread(self, value: Value, positions: Positions, weights: Tensor) -> Tensor:
        flat = self._spread(value.size, positions, tf.cast(weights, value.dtype))
        return tf.reshape(flat, (weights.shape[0], *value.shape))

    @unseen
    def spread_pairs(self, value: Value, positions: Positions, weights: Tensor) -> Tensor:
        flat = self._spread(2 * value.size, positions, tf.cast(weights, value.dtype.real_dtype))
        parts = tf.reshape(flat, (weights.shape[0], *value.shape, 2))
        return tf.complex(parts[..., 0], parts[..., 1])

    @staticmethod
    def _spread(size: int, positions: Positions, weights: Tensor) -> Tensor:
        columns = tf.transpose(weights)  # (positions, k)
        shape = (size, weights.shape[0])
        return tf.transpose(tf.scatter_nd(np.array(positions)[:, None], columns, shape))  # a position may come twice

    @unseen
    def from_numpy(self, array: npt.NDArray[Any], like: Value) -> Tensor:
        return tf.cast(tf.convert_to_tensor(np.array(array)), like.dtype)

    @unseen
    def native(self, given: Any, like: Value) -> Tensor:
        if hasattr(given, "detach"):  # a torch tensor, perhaps on a device
            given = given.detach().cpu()
        made = given if isinstance(given, (tf.Tensor, tf.Variable)) else np.asarray(given)
        made = tf.convert_to_tensor(made)
        narrower = made.dtype.is_complex and not like.dtype.is_complex
        return made if narrower else tf.cast(made, like.dtype)

    @unseen
    def numpy(self, array: Tensor) -> npt.NDArray[Any]:
        if array.dtype == tf.bfloat16:  # NumPy has no such type; float32 holds every bfloat16 exactly
            array = tf.cast(array, tf.float32)
        return np.asarray(array.numpy())

    def shape(self, array: Tensor) -> Shape:
        return tuple(array.shape)

    @unseen
    def reshape(self, array: Tensor, shape: Shape) -> Tensor:
        return array if tuple(array.shape) == shape else tf.reshape(array, shape)

    @unseen
    def transpose(self, array: Tensor) -> Tensor:
        return tf.linalg.matrix_transpose(array)

    @unseen
    def take(self, array: Tensor, positions: Positions, axis: int) -> Tensor:
        return tf.gather(array, np.array(positions), axis=axis)

    @unseen
    def concat(self, arrays: Sequence[Tensor], axis: int) -> Tensor:
        return arrays[0] if len(arrays) == 1 else tf.concat(list(arrays), axis)

    @unseen
    def index(self, positions: Positions, like: Value) -> Tensor:
        return tf.constant(np.array(positions), tf.int64)

    @unseen
    def only(self, array: Tensor, mask: Tensor) -> Tensor:
        flat = tf.reshape(array, (-1,))  # TensorFlow selects along eight axes at most
        return tf.where(tf.reshape(mask, (-1,)), flat, tf.zeros_like(flat))

    @unseen
    def gather(self, array: Tensor, index: Tensor) -> Tensor:
        return tf.gather(array, index)

    @unseen
    def scatter(self, shape: Shape, index: Tensor, values: Tensor, like: Value) -> Tensor:
        size = int(np.prod(shape, dtype=np.int64))
        flat = tf.scatter_nd(index[:, None], tf.cast(tf.reshape(values, (-1,)), like.dtype), (size,))
        return tf.reshape(flat, shape)

    @unseen
    def sum_at(self, size: int, index: Tensor, values: Tensor) -> Tensor:
        return tf.math.unsorted_segment_sum(values, index, size)

    @unseen
    def total(self, array: Tensor, axis: int) -> Tensor:
        return tf.reduce_sum(array, axis)

    @unseen
    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return tf.matmul(a, b)

    @unseen
    def abs(self, array: Tensor) -> Tensor:
        return tf.abs(array)

    @unseen
    def largest(self, array: Tensor) -> float:
        return float(tf.reduce_max(array)) if array.shape.num_elements() else 0.0

    @unseen
    def maxima(self, *arrays: Tensor) -> list[float]:
        return [self.largest(array) for array in arrays]

    @unseen
    def all_finite(self, array: Tensor) -> bool:
        if array.shape.num_elements() < SMALL and array.dtype != tf.bfloat16:
            return bool(np.isfinite(array).all())  # by the buffer protocol: faster than two operations
        return bool(tf.reduce_all(_finite(array)))

    @unseen
    def place(self, target: Tensor, at: tuple[Any, ...], source: Tensor) -> Tensor:
        shape = tuple(target.shape)
        spots = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)[at]
        values = tf.reshape(tf.broadcast_to(tf.cast(source, target.dtype), spots.shape), (-1,))
        flat = tf.reshape(target, (-1,))
        return tf.reshape(tf.tensor_scatter_nd_update(flat, spots.reshape(-1, 1), values), shape)

    @unseen
    def pairs(self, array: Tensor) -> Tensor:
        return tf.stack([tf.math.real(array), tf.math.imag(array)], -1)

    @unseen
    def conjugate(self, array: Tensor) -> Tensor:
        return tf.math.conj(array)

    @unseen
    def times_i(self, array: Tensor) -> Tensor:
        return array * tf.constant(1j, array.dtype)

    @unseen
    def complex(self, real: Tensor, imaginary: Tensor) -> Tensor:
        return tf.complex(real, imaginary)

    @unseen
    def cast(self, array: Tensor, like: Value) -> Tensor:
        return tf.cast(array, like.dtype)

    @unseen
    def cast_like(self, array: Tensor, like: Tensor) -> Tensor:
        return tf.cast(array, like.dtype)

    @unseen
    def isfinite(self, array: Tensor) -> npt.NDArray[np.bool_]:
        result: npt.NDArray[np.bool_] = _finite(array).numpy()
        return result

    @unseen
    def finite_only(self, *arrays: Tensor) -> tuple[Tensor, ...] | None:
        finite = tf.reduce_all(tf.stack([_finite(array) for array in arrays]), 0)
        if bool(tf.reduce_all(finite)):
            return arrays
        return tuple(tf.boolean_mask(array, finite) for array in arrays) if bool(tf.reduce_any(finite)) else None

    def itemsize(self, value: Value) -> int:
        size: int = value.dtype.size
        return size

    def precision(self, value: Value) -> float:
        if value.dtype == tf.bfloat16:
            return float(2.0**-7)
        return float(np.finfo(value.dtype.as_numpy_dtype).eps)

    def is_complex(self, value: Value) -> bool:
        return bool(value.dtype.is_complex)

    def free_memory(self, value: Value) -> int:
        import psutil

        return int(psutil.virtual_memory().available)


def _finite(array: Tensor) -> Tensor:
    if array.dtype.is_complex:
        return tf.math.is_finite(tf.math.real(array)) & tf.math.is_finite(tf.math.imag(array))
    return tf.math.is_finite(array)
