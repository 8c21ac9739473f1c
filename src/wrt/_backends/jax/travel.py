"""How JAX arrays travel to another process: as NumPy arrays, and onto the device that is chosen there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

Settings = dict[str, Any]


def packed(obj: Any) -> tuple[str, str, npt.NDArray[Any]] | None:
    """(kind, dtype, numbers) of an array; None for anything else, and for typed random keys."""
    if not isinstance(obj, jax.Array) or jax.dtypes.issubdtype(obj.dtype, jax.dtypes.extended):
        return None
    return "array", str(obj.dtype), np.asarray(obj)


def unpacked(kind: str, dtype: str, numbers: npt.NDArray[Any], device: str | None) -> Any:
    """The array again, on the device."""
    return jax.device_put(numbers, None if device is None else _device(device))


def from_numpy(array: npt.NDArray[Any]) -> Any:
    """A tensor with the numbers and the dtype of an array, on the default device."""
    return jax.device_put(array)


def devices() -> list[str]:
    """The accelerators of this process."""
    return [f"{one.platform}:{k}" for k, one in enumerate(jax.local_devices()) if one.platform != "cpu"]


def _device(name: str) -> Any:
    """`"gpu:1"`, or the first of a kind: `"cpu"`, which is not among the default devices where there is a GPU."""
    kind, _, number = name.partition(":")
    return jax.local_devices(backend=kind)[int(number or 0)]


def settings() -> Settings:
    """What a run depends on beside its model and its inputs: whether float64 exists."""
    return {"x64": bool(jax.config.jax_enable_x64)}


@contextmanager
def on(device: str | None, chosen: Settings) -> Iterator[None]:
    """Inside, arrays are made on the device and with the settings of whoever sent the model."""
    before = bool(jax.config.jax_enable_x64)
    if before != chosen["x64"]:
        jax.config.update("jax_enable_x64", chosen["x64"])
    try:
        with jax.default_device(None if device is None else _device(device)):
            yield
    finally:
        if before != chosen["x64"]:
            jax.config.update("jax_enable_x64", before)


def seeded(seed: int) -> AbstractContextManager[None]:
    """JAX draws from keys that the program holds: the same in every process anyway."""
    return nullcontext()
