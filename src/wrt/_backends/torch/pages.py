"""Fresh memory for large tensors on a CPU, as NumPy asks the system for it: with huge pages."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from wrt._backends.torch import thresholds
from wrt._core.index import Shape
from wrt._core.thresholds import ALIGNMENT_BYTES

Tensor: TypeAlias = torch.Tensor

NUMPY: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}
"""On a CPU, NumPy makes and looks at small tensors of these in a fraction of the time of torch's dispatcher."""

LARGE = thresholds.FRESH_MEMORY_ELEMENTS
LINE = ALIGNMENT_BYTES


def zeros(shape: Shape, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; where there are many of them, pages that nobody writes to are never touched."""
    if math.prod(shape) > LARGE and dtype in NUMPY and device.type == "cpu":
        return _on_a_line(np.zeros(_beyond(shape, dtype), NUMPY[dtype]), shape)
    return torch.zeros(shape, dtype=dtype, device=device)


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b of two matrices."""
    shape = (a.shape[0], b.shape[1])
    if math.prod(shape) > LARGE and a.is_cpu and a.dtype in NUMPY and not (a.requires_grad or b.requires_grad):
        return torch.mm(a, b, out=_on_a_line(np.empty(_beyond(shape, a.dtype), NUMPY[a.dtype]), shape))
    return a @ b


def _beyond(shape: Shape, dtype: torch.dtype) -> int:
    """Numbers to ask for, so that they hold an array which begins with a line."""
    return math.prod(shape) + LINE // dtype.itemsize


def _on_a_line(raw: npt.NDArray[Any], shape: Shape) -> Tensor:
    """The part of some memory that begins with a line, as a tensor whose storage begins there."""
    start = -raw.ctypes.data % LINE // raw.itemsize
    return torch.from_numpy(raw[start : start + math.prod(shape)].reshape(shape))
