"""Writes through `.data` and `.detach()`: the tensor behind them has other numbers, and its derivative is cut, not zero."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import wrt
from wrt import d, errors

WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    ".data": lambda v, x: v.data.copy_(x),
    ".detach()": lambda v, x: v.detach().copy_(x.detach()),
    "an element of .data": lambda v, x: v.data.__setitem__(0, x[1]),
    "a view of .data": lambda v, x: v.data[1:].copy_(x[1:]),
    ".data of .detach()": lambda v, x: v.detach().data.add_(x),
    ".data of a view": lambda v, x: v.view(3).data.add_(x),
    ".detach() of a part": lambda v, x: v[:2].detach().add_(x[:2].detach()),
}


@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize("required", [False, True])
def test_a_write_behind_a_tensor_cuts_its_path(way: str, required: bool) -> None:
    x = torch.ones(3, requires_grad=required)
    with wrt.record():
        v = torch.zeros(3)
        WRITES[way](v, x)
        y = v * 2
    for later in (v, y):
        with pytest.raises(errors.GradientCut):
            _ = (d(later) / d(x)).value
    assert wrt.why(y, x)


@pytest.mark.parametrize("required", [False, True])
def test_running_statistics_are_computed_from_the_batch(required: bool) -> None:
    x = torch.rand(4, 3, requires_grad=required)
    norm = nn.BatchNorm1d(3)
    with wrt.record():
        norm(x)
        y = norm.running_mean * 2
    with pytest.raises(errors.NoPath):
        _ = (d(y) / d(x)).value
    norm.eval()
    with wrt.record():
        norm(x)
        y = norm.running_mean * 2
    assert not (d(y) / d(x)).connected


def test_a_parameter_updated_by_hand_is_no_trouble() -> None:
    layer, data = nn.Linear(3, 1).double(), torch.rand(4, 3, dtype=torch.float64)
    with wrt.record() as t:
        for _ in range(2):
            loss = layer(data).square().sum()
            loss.backward()
            for parameter in layer.parameters():
                parameter.data.sub_(0.01 * parameter.grad)
                parameter.grad = None
    assert not t.why()
    assert (d(loss) / d(layer.weight)).connected
