"""How torch tensors travel to another process: as bytes, and onto the device that is chosen there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Settings = dict[str, Any]


def packed(obj: Any) -> tuple[str, str, npt.NDArray[Any]] | None:
    """(kind, dtype, numbers) of a tensor; None for anything else. A history stays behind."""
    if not isinstance(obj, torch.Tensor) or obj.layout != torch.strided:
        return None
    kind = "parameter" if isinstance(obj, torch.nn.Parameter) else "leaf" if obj.requires_grad else "tensor"
    plain = obj.detach().resolve_conj().resolve_neg().cpu().contiguous()
    as_bytes = plain.reshape(-1).view(torch.uint8).numpy().reshape(*plain.shape, plain.element_size())
    return kind, str(plain.dtype).removeprefix("torch."), as_bytes


def unpacked(kind: str, dtype: str, numbers: npt.NDArray[Any], device: str | None) -> Any:
    """The tensor again, on the device."""
    flat = torch.from_numpy(np.array(numbers).reshape(-1))  # a copy: what arrives from a network may be read-only
    plain = flat.view(getattr(torch, dtype)).reshape(numbers.shape[:-1])
    plain = plain if device is None else plain.to(device)
    if kind == "parameter":
        return torch.nn.Parameter(plain)
    return plain.requires_grad_(kind == "leaf")


def from_numpy(array: npt.NDArray[Any]) -> Any:
    """A tensor with the numbers and the dtype of an array, on the default device."""
    return torch.from_numpy(np.array(array))


def devices() -> list[str]:
    """The accelerators of this process."""
    return [f"cuda:{k}" for k in range(torch.cuda.device_count())] if torch.cuda.is_available() else []


def settings() -> Settings:
    """What a run depends on beside its model and its inputs."""
    return {"dtype": str(torch.get_default_dtype()).removeprefix("torch.")}


@contextmanager
def on(device: str | None, chosen: Settings) -> Iterator[None]:
    """Inside, tensors are made on the device and with the settings of whoever sent the model."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, chosen["dtype"]))
    try:
        if device is None:
            yield
        else:
            with torch.device(device):
                yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, random numbers follow the seed; afterwards the generators go on where they were."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
