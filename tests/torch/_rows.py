"""The truth that tests compare with: plain autograd, one row at a time."""

from typing import Any

import torch


def row_loop(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """dy/dx by one plain `autograd.grad` for each element of y; what is not reached is zero."""
    rows = []
    for element in y.reshape(-1):
        (row,) = torch.autograd.grad(element, x, retain_graph=True, allow_unused=True)
        rows.append(torch.zeros_like(x) if row is None else row.to_dense())
    stacked = torch.stack(rows) if rows else x.new_zeros((0, *x.shape))
    return stacked.reshape(*y.shape, *x.shape).detach()


def agree(got: Any, expected: torch.Tensor, *, ulps: float = 64) -> None:
    """Equal up to a few roundings of the dtype, measured against the largest entry."""
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    assert got.device == expected.device
    assert not got.requires_grad
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    worst = float((got - expected).abs().max()) if expected.numel() else 0.0
    assert worst <= ulps * torch.finfo(expected.dtype).eps * scale, f"{worst:.3g} of {scale:.3g}"
