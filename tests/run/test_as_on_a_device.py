"""What is decided otherwise for a device, on the CPU: larger calls, noise that counts as zero, other prices.

Answers are held to a row loop in float64, and every fault has to be found.
"""

import pytest
import torch
from torch import nn

from tests.torch._rows import row_loop
from wrt import d
from wrt._backends.torch.arrays import TorchArrays
from wrt._backends.torch.live import LiveRecord


@pytest.fixture(autouse=True)
def on_a_device(monkeypatch, planned_from_the_start):
    monkeypatch.setattr(TorchArrays, "accelerated", lambda self, value: True)


def random(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


def burgers(u):
    inner = 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) - u[1:-1] * (u[2:] - u[:-2])
    return torch.cat([u[:1], inner, u[-1:]])


def five_points(x):
    return x.sin() + x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) * x + x.roll(-1, 1)


def samples(x):
    return torch.tanh(x @ torch.linspace(-1, 1, 36, dtype=x.dtype).reshape(6, 6)) * x


def convolution(x):
    torch.manual_seed(0)
    return nn.Conv2d(2, 2, 3, padding=1).double()(x[None]).tanh()[0]


def narrow(x):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(300, 9), nn.Tanh(), nn.Linear(9, 300)).double()(x)


CASES = {
    "stencil": (burgers, (400,), "structured"),
    "five points": (five_points, (20, 25), "structured"),
    "samples": (samples, (40, 6), "structured"),
    "convolution": (convolution, (2, 12, 12), "structured"),
    "narrow": (narrow, (300,), "direct"),  # rows are as quick there
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_gives_the_rows_of_a_loop_first_and_again(name):
    f, shape, strategy = CASES[name]
    x = random(*shape)
    y = f(x)
    expected = row_loop(y, x)
    for turn in ("cold", "warm"):
        J = d(y) / d(x)
        torch.testing.assert_close(J.value.reshape(expected.shape), expected, rtol=1e-11, atol=1e-13, msg=turn)
        assert J.explain().strategy == strategy
        assert J.certificate


@pytest.mark.parametrize("name", [name for name in CASES if name != "narrow"])
def test_nonzeros_are_those_of_a_loop_first_and_again(name):
    f, shape, _ = CASES[name]
    for seed in range(2):
        x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        y = f(x)
        found, expected = (d(y) / d(x)).sparse(), row_loop(y, x).reshape(y.numel(), -1)
        torch.testing.assert_close(torch.from_numpy(found.toarray()), expected, rtol=1e-11, atol=1e-13)
        assert found.nnz == torch.count_nonzero(expected)
        assert found.has_sorted_indices
        found.data[:], found.indices[:] = 7, 0  # what comes next shares no memory with it


def test_other_zeros_than_last_time_are_no_entries():
    """Also where exactly as many are left."""
    x = random(200)
    with torch.no_grad():
        x.abs_()
    for dead in ([3, 77], [5, 80], [], [5, 80], [5, 80], range(90)):
        mask = torch.ones(200, dtype=x.dtype)
        mask[list(dead)] = 0
        y = burgers(x) * mask
        found, expected = (d(y) / d(x)).sparse(), row_loop(y, x)
        torch.testing.assert_close(torch.from_numpy(found.toarray()), expected, rtol=1e-11, atol=1e-13)
        assert found.nnz == torch.count_nonzero(expected)


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_an_entry_outside_the_pattern_is_found(size):
    x = random(400)
    y = burgers(x)
    y = y + size * torch.zeros(400, dtype=y.dtype).index_fill(0, torch.tensor([217]), 1.0) * x[33]
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-13)
    assert "column 33 swept alone" in str(J.certificate)
    assert J.certificate


def test_a_plan_that_has_gone_stale_is_found():
    x = random(360)
    (d(x.roll(1) * x) / d(x)).value
    y = x.roll(2) * x  # the same operations on the same shapes
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-14)
    assert J.explain().fallbacks
    assert J.certificate


def test_weights_that_are_not_those_of_the_last_layer_are_found(monkeypatch):
    x = random(70)
    torch.manual_seed(0)
    y = nn.Sequential(nn.Linear(70, 80), nn.Tanh(), nn.Linear(80, 70)).double()(x)
    real = LiveRecord.last_weights

    def wrong(self, y, xs):
        value, rows = real(self, y, xs)
        rows = rows.clone()
        rows.view(70, -1)[5, 7] *= 1.001
        return value, rows

    monkeypatch.setattr(LiveRecord, "last_weights", wrong)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-13)
    assert "y is a matrix times a tensor" not in J.explain().because or "swept alone" in str(J.certificate)
    assert J.certificate
