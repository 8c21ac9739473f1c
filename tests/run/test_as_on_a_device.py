"""The ways that only a device takes, on the CPU: zeros made ahead, proofs that overlap.

Once as if numbers were many, so that NumPy cannot look at them and indices are made where they are read; once with few.

Answers are held to a row loop in float64, and every fault has to be found.
"""

import pytest
import torch
from torch import nn

from tests.torch._rows import row_loop
from wrt import d, errors
from wrt._backends.torch import arrays
from wrt._backends.torch.arrays import TorchArrays
from wrt._backends.torch.live import LiveRecord
from wrt._run import budget, compressed, planned, straight, sweeps


@pytest.fixture(autouse=True, params=["many", "few"])
def on_a_device(request, monkeypatch, planned_from_the_start):
    monkeypatch.setattr(TorchArrays, "accelerated", lambda self, value: True)
    if request.param == "many":
        monkeypatch.setattr(TorchArrays, "at_hand", lambda self, *arrays: None)
        monkeypatch.setattr(arrays, "AT_HAND", 0)
        monkeypatch.setattr(compressed, "FEW_ONES", 0)


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


def waist(x):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(300, 9), nn.Tanh(), nn.Linear(9, 300)).double()(x)


CASES = {
    "stencil": (burgers, (400,), "structured"),
    "five points": (five_points, (20, 25), "structured"),
    "samples": (samples, (40, 6), "structured"),
    "convolution": (convolution, (2, 12, 12), "structured"),
    "waist": (waist, (300,), "cut"),
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


@pytest.mark.parametrize("name", [name for name in CASES if name != "waist"])
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
    assert J.explain().fallbacks
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
    real = LiveRecord.weights

    def wrong(self, y, xs):
        value, rows = real(self, y, xs)
        rows = rows.clone()
        rows.view(70, -1)[5, 7] *= 1.001
        return value, rows

    monkeypatch.setattr(planned, "QUICK", 2e-3)
    monkeypatch.setattr(LiveRecord, "weights", wrong)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-13)
    assert not J.explain().steps[0].what.startswith("rows, starting as the weights")
    assert J.certificate


def test_a_known_batch_is_looked_at_again_only_where_less_memory_is_free(monkeypatch):
    free, looked = [2**33], []
    real = sweeps.chunk_size
    monkeypatch.setattr(sweeps, "HANDFUL", 2)
    monkeypatch.setattr(budget, "free", lambda like: free[0])
    monkeypatch.setattr(sweeps, "chunk_size", lambda ask: looked.append(ask) or real(ask))
    x = random(200)
    expected = row_loop(burgers(x), x)
    for memory, looks in ((2**33, 3), (2**33, 1), (2**33, 0), (2**34, 0), (2**32, 1), (2**32, 0)):
        free[0] = memory
        looked.clear()
        torch.testing.assert_close((d(burgers(x)) / d(x)).value, expected, rtol=1e-11, atol=1e-13)
        assert len(looked) <= looks


def test_a_large_answer_goes_straight_too_where_it_fits(monkeypatch):
    looked = []
    monkeypatch.setattr(straight, "SMALL", 0)
    monkeypatch.setattr(straight, "refuse_too_large", looked.append)
    x = random(200)
    expected = row_loop(burgers(x), x)
    for _ in range(4):
        torch.testing.assert_close((d(burgers(x)) / d(x)).value, expected, rtol=1e-11, atol=1e-13)
    assert len(looked) == 2  # the first one was planned, the second held

    def too_large(ask):
        raise errors.TooLarge("the Jacobian", "too little is free", "ask for rows")

    monkeypatch.setattr(straight, "refuse_too_large", too_large)
    with pytest.raises(errors.TooLarge):
        (d(burgers(x)) / d(x)).value
