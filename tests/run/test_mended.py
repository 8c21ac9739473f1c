"""A guess that is wrong in a few columns is put right there, and nowhere else; one that is wrong in many is dropped."""

import numpy as np
import pytest
import torch

from tests.plan.problems import row_loop
from wrt import d
from wrt._backends.torch import arrays
from wrt._backends.torch.sweep import TorchLinear
from wrt._run.compressed import guess_tolerance
from wrt._run.proof import LEAST, least

pytestmark = pytest.mark.usefixtures("planned_from_the_start")


def asked(strays, n=400, dtype=torch.float64):
    """A stencil with entries outside of it: (row, column, slope)."""
    x = torch.randn(n, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = (x.sin() + 0.5 * x.roll(1)).clone()
    for row, column, slope in strays:
        y[row] = y[row] + slope * x[column]
    return y, x


@pytest.mark.parametrize(
    "strays",
    [
        [(137, 211, 1e-3)],
        [(137, 211, 1e-3), (138, 211, 2.0), (9, 300, -1.0)],
        [(50, 52, 1.0), (52, 50, 1.0)],
        [(row, 77, 1.0) for row in range(100, 160)],
        [(130, column, 0.1) for column in range(20, 36)],
    ],
)
def test_only_the_columns_that_disagree_are_swept_alone(strays):
    y, x = asked(strays)
    truth = row_loop(y, x)
    for _ in range(2):  # cold, then warm
        J = d(y) / d(x)
        torch.testing.assert_close(J.value, truth, rtol=1e-12, atol=1e-12)
        assert J.explain().strategy == "structured"
        assert J.explain().passes < 40
        assert J.certificate
        assert "swept alone" in J.explain().fallbacks[0]
    np.testing.assert_allclose((d(y) / d(x)).sparse().toarray(), truth.numpy(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close((d(y) / d(x)).diagonal(), truth.diagonal(), rtol=1e-12, atol=1e-12)


def test_the_columns_are_named():
    y, x = asked([(137, 211, 1e-3), (9, 300, -1.0)])
    J = d(y) / d(x)
    _ = J.value
    assert J.explain().fallbacks == ("structured: the guess was wrong in 2 columns (211, 300), swept alone",)


def test_a_guess_that_is_wrong_in_many_columns_is_dropped():
    y, x = asked([(row, (7 * row) % 400, 0.3) for row in range(3, 390, 9)])
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert J.certificate


def test_single_precision_is_mended_too():
    y, x = asked([(137, 211, 0.5)], dtype=torch.float32)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-5, atol=1e-6)
    assert J.explain().strategy == "structured"


def test_the_tolerance_grows_with_the_operations_on_the_way():
    y, x = asked([])
    ask = (d(y) / d(x)).ask
    assert guess_tolerance(ask, 10) < guess_tolerance(ask, 1000) < 1e-11
    y, x = asked([], dtype=torch.float32)
    ask = (d(y) / d(x)).ask
    assert 1e-6 < guess_tolerance(ask, 10) < guess_tolerance(ask, 1000) <= 0.05


def uneven(stray, large, n=400, seed=0):
    """A stencil whose first half is large, and one entry outside of it in the other half, in single precision."""
    scale = torch.ones(n)
    scale[: n // 2] = large
    x = torch.randn(n, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    y = (scale * x.sin() * x.roll(1)).clone()
    y[137] = y[137] + stray * x[250]
    return y, x


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("large", [1.0, 1e4, 2e5])
def test_a_column_is_held_to_its_own_size_not_to_the_largest(large, many, monkeypatch):
    if many:
        monkeypatch.setattr(arrays, "LARGE", 64)  # so that 400 columns are more numbers than NumPy looks at
    for seed in range(4):  # cold, then warm
        y, x = uneven(1.0, large, seed=seed)
        J = d(y) / d(x)
        assert J.value[137, 250].item() == 1.0
        torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-5, atol=1e-6 * large)
        assert "wrong in column 250, swept alone" in J.explain().fallbacks[0]
        assert (d(y) / d(x)).sparse()[137, 250] == 1.0


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("count", [5, 200])
def test_roundoff_of_what_cancelled_in_small_columns_is_no_alarm(count, many, monkeypatch):
    """Their entries are what is left of much larger numbers. A few are pushed alone, and seen to be right."""
    if many:
        monkeypatch.setattr(arrays, "LARGE", 64)
    n = 400
    small = torch.arange(n) % (n // count) == 0
    scale, away = torch.where(small, 1.0, 1e4), torch.where(small, 3e5, 0.0)
    for seed in range(4):
        x = torch.randn(n, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        y = scale * x.sin() + away * x + 0.5 * x.roll(1) + 0.3 * x.roll(2) - away * x
        J = d(y) / d(x)
        torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-5, atol=0.2)
        told = J.explain()
        assert (told.strategy, told.fallbacks) == ("structured", ())
        assert any(step.what == "columns that did not fit" for step in told.steps) == (count == 5)
        assert J.certificate


def test_half_precision_is_held_to_the_largest_column():
    """So few of its roundings are allowed that every small column would be in doubt."""
    for dtype, share in ((torch.float64, LEAST), (torch.float32, LEAST), (torch.float16, 1.0), (torch.bfloat16, 1.0)):
        y, x = asked([], dtype=dtype)
        assert least(guess_tolerance((d(y) / d(x)).ask)) == share


def test_columns_that_nobody_can_push_are_held_to_the_largest(monkeypatch):
    """Fewer faults are found then, and none is made up."""
    monkeypatch.setattr(TorchLinear, "push_rungs", ())
    y, x = uneven(1.0, 1e3)
    assert (d(y) / d(x)).value[137, 250].item() == 1.0
    y, x = uneven(0.0, 1e6)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-5, atol=1.0)
    assert J.certificate
    assert not J.explain().fallbacks
