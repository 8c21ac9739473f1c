"""Products: one push or pull each, many from the left travel together, as right as one by one, and proven."""

import pytest
import torch

from tests.plan.problems import row_loop
from wrt import d
from wrt._backends.torch.engine import TorchEngine


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
    passes = {step.what: (step.passes, step.calls) for step in J.explain().steps}
    assert passes == ({"u @ J": (k, k)} if k < 8 else {"u @ J": (k, 1), "independent check": (1, 1)})


def test_products_with_some_rows_travel_together_too():
    y, x = asked()
    J = d(y)[2:6] / d(x)[3:]
    truth = row_loop(y, x)[2:6, 3:]
    torch.testing.assert_close(us(20, 4) @ J, us(20, 4) @ truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("row", [0, 11, 19])
def test_a_batch_that_is_wrong_is_found(monkeypatch, row):
    right = TorchEngine.pull

    def wrong(self, seeds, *, batched=True):
        swept = right(self, seeds, batched=batched)
        if batched:
            swept.arrays[0][row] *= 1 + 1e-6
        return swept

    monkeypatch.setattr(TorchEngine, "pull", wrong)
    y, x = asked()
    J = d(y) / d(x)
    torch.testing.assert_close(us(20) @ J, us(20) @ row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert J.explain().fallbacks[0].startswith("batch: DISAGREES with an independent backward pass")
    assert str(J.certificate) == "the engine's own plain pass"


@pytest.mark.parametrize("always", [True, False])
@pytest.mark.parametrize("size", [1e-9, 1e-3])
def test_a_push_that_is_wrong_is_found(monkeypatch, size, always):
    """In a batch only, or one by one too: then J is made of its rows."""
    right = TorchEngine.push

    def wrong(self, tangents, *, batched=True):
        swept = right(self, tangents, batched=batched)
        if batched or always:
            swept.arrays[0][0] *= 1 + size
        return swept

    monkeypatch.setattr(TorchEngine, "push", wrong)
    y, x = asked()
    J, v = d(y) / d(x), us(9, 3)
    torch.testing.assert_close(J @ v, row_loop(y, x) @ v, rtol=1e-12, atol=1e-12)
    assert "DISAGREES" in J.explain().fallbacks[0]
    assert J.certificate


def test_what_is_not_finite_comes_from_the_engine_itself():
    x = torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64, requires_grad=True)
    y = torch.sqrt(x)
    J = d(y) / d(x)
    alone = torch.stack([torch.autograd.grad(y, x, u, retain_graph=True)[0] for u in us(10, 3)])
    torch.testing.assert_close(us(10, 3) @ J, alone, equal_nan=True)


@pytest.mark.parametrize("k", [1, 3, 20])
def test_a_hook_that_writes_into_its_gradient_spoils_neither_the_answer_nor_what_was_given(k):
    y, x = asked()
    truth = 2 * row_loop(y, x)
    y.register_hook(lambda g: g.mul_(2))
    given = us(k)
    J = d(y) / d(x)
    torch.testing.assert_close(given @ J, us(k) @ truth, rtol=1e-12, atol=1e-12)
    assert torch.equal(given, us(k))
    assert not J.explain().fallbacks
    assert J.certificate


def test_nor_that_of_complex_numbers():
    y, x = asked()
    truth = 2 * (1 + 2j) * row_loop(y, x)
    y = (1 + 2j) * y
    y.register_hook(lambda g: g.mul_(2))
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, truth, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close((d(y)[3] / d(x)).value, truth[3], rtol=1e-12, atol=1e-12)
    assert J.certificate
