"""Products from the left: many of them travel together, as right as one by one, and proven."""

import pytest
import torch

from tests.plan.problems import row_loop
from wrt import d
from wrt._backends.torch.sweep import TorchLinear


def asked(f=lambda x: torch.cumsum(torch.sin(x), 0) * x.sum()):
    x = torch.randn(9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    return f(x), x


def us(k, m=9):
    return torch.randn(k, m, dtype=torch.float64, generator=torch.Generator().manual_seed(k))


@pytest.mark.parametrize("k", [1, 2, 7, 8, 40])
@pytest.mark.parametrize("f", [lambda x: torch.cumsum(torch.sin(x), 0) * x.sum(), lambda x: torch.erfinv(x.tanh()) + x])
def test_products_from_the_left_are_those_of_the_rows(k, f):
    y, x = asked(f)
    J = d(y) / d(x)
    torch.testing.assert_close(us(k) @ J, us(k) @ row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert J.certificate
    calls = sum(step.calls for step in J.explain().steps)
    assert calls == (k if k < 8 else 1 if "probe" in J.explain().steps[0].what else 2)


def test_products_with_some_rows_travel_together_too():
    y, x = asked()
    J = d(y)[2:6] / d(x)[3:]
    truth = row_loop(y, x)[2:6, 3:]
    torch.testing.assert_close(us(20, 4) @ J, us(20, 4) @ truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("row", [0, 11, 19])
def test_a_batch_that_is_wrong_is_found(monkeypatch, row):
    for name in ("_pull_by_rules", "_pull_vmap"):
        right = getattr(TorchLinear, name)

        def wrong(self, *given, right=right, **how):
            (found,) = right(self, *given, **how)
            found = found.clone()
            found[row] *= 1 + 1e-6
            return [found]

        monkeypatch.setattr(TorchLinear, name, wrong)
    y, x = asked()
    J = d(y) / d(x)
    torch.testing.assert_close(us(20) @ J, us(20) @ row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert "the certificate disagreed" in "\n".join(J.explain().fallbacks)


def test_what_is_not_finite_comes_from_the_engine_itself():
    x = torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64, requires_grad=True)
    y = torch.sqrt(x)
    J = d(y) / d(x)
    alone = torch.stack([torch.autograd.grad(y, x, u, retain_graph=True)[0] for u in us(10, 3)])
    torch.testing.assert_close(us(10, 3) @ J, alone, equal_nan=True)
