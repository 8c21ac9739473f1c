"""A backward that cannot be differentiated again is refused in a second derivative, never left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd.function import once_differentiable

import wrt
from wrt import d, errors

DOUBLE = torch.float64


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return g * x.cos()


class OnceSine(Sine):
    backward = staticmethod(once_differentiable(Sine.backward))


class NumpySine(Sine):
    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return torch.from_numpy(g.numpy() * np.cos(x.detach().numpy()))


class DetachedSine(Sine):
    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return (g * x.cos()).detach()


class Triple(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return 3 * x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return 3 * g


def points() -> torch.Tensor:
    return torch.linspace(-1, 2, 4, dtype=DOUBLE, requires_grad=True)


@pytest.mark.parametrize("function", [OnceSine, NumpySine, DetachedSine])
@pytest.mark.parametrize("branch", ["alone", "beside a square", "inside a square", "recorded"])
def test_a_branch_that_would_be_left_out_is_refused(function: Any, branch: str) -> None:
    x = points()
    if branch == "recorded":
        with wrt.record():
            y = function.apply(x).sum()
    elif branch == "inside a square" and function is not NumpySine:
        y = function.apply(x).square().sum()
    else:
        y = (function.apply(x) + (x**2 if branch == "beside a square" else 0)).sum()
    H = d(y) / d(x) / d(x)
    with pytest.raises(errors.EngineRefused) as refused:
        _ = H.value
    assert str(refused.value) == (
        f"the backward of {function.__name__} cannot be differentiated again\n"
        "  it is marked once_differentiable or leaves torch: a second derivative would leave this branch out\n"
        f"  write {function.__name__}.backward with torch operations on ctx.saved_tensors, without @once_differentiable"
    )
    with pytest.raises(errors.EngineRefused):
        _ = H @ torch.ones(4, dtype=DOUBLE)


def test_a_backward_made_of_torch_operations_is_differentiated_again() -> None:
    x = points()
    H = (d(Sine.apply(x).sum()) / d(x) / d(x)).value
    assert torch.allclose(H, torch.diag(-x.sin()))
    assert torch.equal((d(Triple.apply(x).sum()) / d(x) / d(x)).value, torch.zeros(4, 4, dtype=DOUBLE))
    assert torch.allclose((d(Triple.apply(x).square().sum()) / d(x) / d(x)).value, 18 * torch.eye(4, dtype=DOUBLE))


def test_what_the_lost_branch_does_not_depend_on_is_answered() -> None:
    x, w = points(), points()
    y = (OnceSine.apply(x) + x * w).sum()
    assert torch.equal((d(y) / d(x) / d(w)).value, torch.eye(4, dtype=DOUBLE))


def test_the_cotangent_of_a_lost_branch_counts_too() -> None:
    x, w = points(), points()
    y = (OnceSine.apply(x) * w).sum()
    with pytest.raises(errors.EngineRefused, match="OnceSine"):
        _ = (d(y) / d(x) / d(w)).value
    assert torch.allclose((d(y) / d(w) / d(x)).value, torch.diag(x.cos()))
