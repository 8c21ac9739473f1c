"""A run is surveyed by one pass; what that pass proves to be well is not looked at again."""

import numpy as np
import pytest
import torch
from torch import nn

import wrt


class Deep(nn.Module):
    """Twelve convolutions, each with a bias that the normalization after it takes away again."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(12))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(12))

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + torch.relu(norm(conv(x)))
        return x


@pytest.fixture
def backwards(monkeypatch):
    """How often the engine runs."""
    runs = []
    original = torch.autograd.graph._engine_run_backward

    def counted(*args, **kwargs):
        runs.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "_engine_run_backward", counted)
    return runs


def step(model, x, optimizer):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean() * 1e-3
    loss.backward()
    optimizer.step()


def test_a_healthy_step_costs_one_pass_of_ours(backwards):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with wrt.record() as t:
        step(model, torch.randn(5, 4), optimizer)
    of_the_user = len(backwards)
    assert not t.why()
    assert (of_the_user, len(backwards)) == (1, 2)


def test_biases_before_a_normalization_are_no_alarm_however_deep(backwards):
    torch.manual_seed(1)
    model, x = Deep(), torch.randn(2, 4, 8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with wrt.record() as t:
        step(model, x, optimizer)
    assert max(float(conv.bias.grad.abs().max()) for conv in model.convs) < 1e-8  # zero but for roundoff
    assert not t.why()
    assert len(backwards) == 2


def test_asked_alone_such_a_bias_does_not_change_the_output():
    torch.manual_seed(1)
    model, x = Deep(), torch.randn(2, 4, 8, 8)
    with wrt.record():
        loss = model(x).pow(2).mean() * 1e-3
    found = wrt.why(loss, model.convs[1].bias)
    assert [finding.cause for finding in found] == ["invariant_output"]


def test_one_sick_parameter_among_many_is_found():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        model[2].bias.fill_(-100.0)
    with wrt.record() as t:
        step(model, torch.randn(5, 4), torch.optim.SGD(model.parameters(), lr=0.1))
    assert {finding.cause for finding in t.why()} == {"dead_relu"}


def test_a_gradient_of_ordinary_size_can_be_wrong():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 3 * g

    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    with wrt.record() as t:
        step(lambda x: Twice.apply(model(x)), torch.randn(5, 4), torch.optim.SGD(model.parameters(), lr=0.1))
    assert [finding.cause for finding in t.why()] == ["custom_backward_wrong"]


def test_a_chain_that_really_vanishes_is_said_so():
    layers = [layer for _ in range(24) for layer in (nn.Linear(6, 6), nn.Sigmoid())]
    torch.manual_seed(0)
    model = nn.Sequential(*layers).double()
    with wrt.record() as t:
        step(model, torch.randn(5, 6, dtype=torch.float64), torch.optim.SGD(model.parameters(), lr=0.1))
    assert "vanishing_chain" in {finding.cause for finding in t.why()}


def test_the_glance_sees_what_numpy_sees():
    x = torch.tensor([[1.0, -5.0], [float("nan"), 2.0]])
    with wrt.record() as t:
        w = torch.ones(2, 2, requires_grad=True)
        v = torch.ones(2, 2, requires_grad=True)
        y = (w * x).sum() + (v * torch.tensor([3.0, -7.0])).sum()
    record = t._one
    evidence = record.evidence()
    numbers = [record.numbered(record.find(tensor)) for tensor in (y, w, v)]
    assert np.allclose(evidence.largest(numbers[0], np.ones(()), numbers[1:]), [np.nan, 7.0], equal_nan=True)
