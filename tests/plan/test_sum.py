"""A sum whose terms are answered by themselves: a residual around a bottleneck takes the passes of the bottleneck."""

import pytest
import torch

from tests.plan.problems import row_loop
from wrt import d
from wrt._backends.torch.live import LiveRecord
from wrt._plan import cache
from wrt._run import run

N, WIDTH = 300, 5


def weights(*shape, seed=0):
    made = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))
    return made / shape[-1] ** 0.5


def narrow(x, seed=0):
    inner = torch.tanh(weights(60, N, seed=seed) @ torch.sin(x))
    return weights(N, 60, seed=seed) @ torch.tanh(weights(60, WIDTH) @ (weights(WIDTH, 60, seed=seed) @ inner))


def residual(x, seed=0):
    return x + narrow(x, seed)


SUMS = {
    "a residual": (lambda x: x + narrow(x), 2 * WIDTH + 2),
    "the other way round": (lambda x: narrow(x) + x, 2 * WIDTH + 2),
    "parts of both": (lambda x: x[1:] + narrow(x)[1:], 26),
    "two of them": (lambda x: x + narrow(x) + narrow(x, 5), 4 * WIDTH + 4),
    "blocks in turn": (lambda x: residual(residual(x), 3), 4 * WIDTH + 4),
    "many blocks in turn": (lambda x: residual(residual(residual(residual(residual(x, 5), 4), 3), 2), 1), None),
}


def point(seed=0):
    return torch.randn(N, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_is_answered_term_by_term(name):
    f, passes = SUMS[name]
    for seed in range(2):  # cold, then warm
        x = point(seed)
        y = f(x)
        truth = row_loop(y, x)
        J = d(y) / d(x)
        torch.testing.assert_close(J.value, truth, rtol=1e-11, atol=1e-11)
        assert J.certificate
        if passes is not None:
            assert J.explain().strategy == "sum"
            assert J.explain().passes <= passes
    if y.shape != x.shape:
        return
    torch.testing.assert_close((d(y) / d(x)).diagonal(), truth.diagonal(), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close((d(y) / d(x)).gram().value, truth.T @ truth, rtol=1e-10, atol=1e-10)


def test_a_waist_of_the_whole_sum_comes_first():
    x = point()
    y = narrow(x) + narrow(x, 7)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-11)
    assert J.explain().strategy == "cut"


@pytest.mark.parametrize("other", [lambda x: x * x, lambda x: x - narrow(x)])
def test_what_is_no_such_sum_is_answered_otherwise(other):
    x = point()
    y = other(x)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-11)
    assert J.explain().strategy != "sum"


@pytest.mark.parametrize("off", [1e-7, 1e-3, 1.0])
def test_a_wrong_term_is_found(monkeypatch, off):
    right = run.dense

    def wrong(arrays, blocks):  # the product of the one term that is not x itself
        found = right(arrays, blocks).clone()
        if found.shape == (N, N):
            found[17, 23] += off * float(found.abs().max())
        return found

    monkeypatch.setattr(run, "dense", wrong)
    x = point()
    y = x + narrow(x)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-11)
    assert J.certificate
    assert "column 23 swept alone" in str(J.certificate)


@pytest.mark.parametrize("other", [lambda x: x * narrow(x), lambda x: 2 * x + narrow(x), lambda x: torch.sin(x) + x])
def test_the_plan_of_another_program_is_found_out(monkeypatch, other):
    monkeypatch.setattr(LiveRecord, "signature", lambda self, y, xs: ("everything looks the same",) * 30)
    x = point()
    cache.forget()
    y = x + narrow(x)
    assert (d(y) / d(x)).value is not None
    z = other(x)
    torch.testing.assert_close((d(z) / d(x)).value, row_loop(z, x), rtol=1e-11, atol=1e-11)
