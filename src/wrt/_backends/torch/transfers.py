"""Numbers on their way to a device and back."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from wrt._backends.torch.pages import NUMPY

Tensor: TypeAlias = torch.Tensor
WIDER = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}


def sent(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """A NumPy array on a device. The host does not wait for what the device is at: CUDA takes a copy and returns."""
    if device.type != "cuda":
        return torch.from_numpy(np.array(array)).to(device)
    return torch.from_numpy(array if array.flags.writeable else np.array(array)).to(device, non_blocking=True)


def in_numpy(array: Tensor) -> npt.NDArray[Any]:
    """A plain tensor as NumPy holds it. From a device it is written to memory of NumPy's, which is there sooner."""
    if array.is_cuda and array.dtype in NUMPY:
        made: npt.NDArray[Any] = np.empty(tuple(array.shape), NUMPY[array.dtype])
        torch.from_numpy(made).copy_(array)
        return made
    plain = array.cpu()
    if plain.dtype in WIDER:  # NumPy has no such types; these hold every number of theirs exactly
        plain = plain.to(WIDER[plain.dtype])
    found: npt.NDArray[Any] = plain.numpy()
    return found
