"""How large a gradient is at many values of a run: measured where the numbers are, by one pass of the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor


def measured(numbers: Sequence[int], gradients: Sequence[Tensor | None]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Largest and mean size, zeros and what is not finite, for each gradient that arrived."""
    for number, gradient in zip(numbers, gradients, strict=True):
        if gradient is not None and gradient.numel():
            yield number, _measure(gradient.detach())


def _measure(gradient: Tensor) -> dict[str, Any]:
    if gradient.layout != torch.strided:
        gradient = gradient.to_dense()
    sizes = gradient.abs()
    count = sizes.numel()
    largest, mean = (float(one) for one in (sizes.amax(), sizes.mean(dtype=torch.float64)))
    broken = 0
    if not (mean - mean == 0 and largest - largest == 0):  # a NaN or an infinity shows in the mean
        finite = torch.isfinite(sizes)
        broken = count - int(finite.sum())
        good = sizes[finite]
        largest, mean = (float(good.max()), float(good.mean(dtype=torch.float64))) if good.numel() else (0.0, 0.0)
    return {
        "max": largest if broken < count else "nan",
        "mean": mean if broken < count else "nan",
        "zeros": count - int(torch.count_nonzero(sizes)),
        "nonfinite": broken,
        "size": count,
    }
