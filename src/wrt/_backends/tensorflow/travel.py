"""How TensorFlow tensors travel to another process: as NumPy arrays, and onto the device that is chosen there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

Settings = dict[str, Any]


def packed(obj: Any) -> tuple[str, str, npt.NDArray[Any]] | None:
    """(kind, dtype, numbers) of a tensor or a variable; None for anything else."""
    if isinstance(obj, tf.Variable):
        return "trainable" if obj.trainable else "variable", obj.dtype.name, np.asarray(obj.numpy())
    if isinstance(obj, tf.Tensor) and hasattr(obj, "numpy"):
        return "tensor", obj.dtype.name, np.asarray(obj.numpy())
    return None


def unpacked(kind: str, dtype: str, numbers: npt.NDArray[Any], device: str | None) -> Any:
    """The tensor again, on the device."""
    with nullcontext() if device is None else tf.device(device):
        plain = tf.convert_to_tensor(numbers, dtype=dtype)
        return plain if kind == "tensor" else tf.Variable(plain, trainable=kind == "trainable")


def from_numpy(array: npt.NDArray[Any]) -> Any:
    """A tensor with the numbers and the dtype of an array, on the default device."""
    return tf.convert_to_tensor(array)


def devices() -> list[str]:
    """The accelerators of this process."""
    return [one.name.removeprefix("/physical_device:") for one in tf.config.list_physical_devices("GPU")]


def settings() -> Settings:
    """What a run depends on beside its model and its inputs: the floats Keras makes."""
    keras = sys.modules.get("keras")
    return {} if keras is None else {"floatx": keras.config.floatx(), "policy": keras.config.dtype_policy().name}


@contextmanager
def on(device: str | None, chosen: Settings) -> Iterator[None]:
    """Inside, tensors are made on the device and with the settings of whoever sent the model."""
    keras = import_module("keras") if chosen else None
    before = None if keras is None else (keras.config.floatx(), keras.config.dtype_policy())
    try:
        if keras is not None:
            keras.config.set_floatx(chosen["floatx"])
            keras.config.set_dtype_policy(chosen["policy"])
        with nullcontext() if device is None else tf.device(device):
            yield
    finally:
        if keras is not None and before is not None:
            keras.config.set_floatx(before[0])
            keras.config.set_dtype_policy(before[1])


def seeded(seed: int) -> AbstractContextManager[None]:
    """TensorFlow's global generator cannot be put back where it was: another run is noticed by its numbers instead."""
    return nullcontext()
