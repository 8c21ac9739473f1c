"""Nested cuts: rows carried through several tensors; stretches that do not mix samples or tokens take a few passes."""

import pytest
import torch
import torch.nn.functional as F

from tests.planner.problems import row_loop
from wrt import d
from wrt._core.flow import Flow
from wrt._planner.strategies.chain import stretches
from wrt._run import chained


def weights(*shape):
    made = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))
    return made / shape[0] ** 0.5


def each_token(x, d=16):
    return x + F.gelu(x @ weights(d, 8 * d)) @ weights(8 * d, d)


def mixed(x):
    return x + torch.softmax(x @ x.T, -1) @ x


def asked(f, shape=(18, 16)):
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    return f(x), x


CHAINS = {
    "tokens, then attention": lambda x: each_token(mixed(x)),
    "attention, then tokens": lambda x: mixed(each_token(x)),
    "two blocks": lambda x: each_token(mixed(each_token(mixed(x)))),
    "tokens on both sides": lambda x: each_token(mixed(each_token(x))),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_stretch_that_keeps_tokens_apart_takes_a_pass_for_each_of_their_numbers(name):
    y, x = asked(CHAINS[name])
    truth = row_loop(y, x)
    for _ in range(2):  # cold, then warm
        J = d(y) / d(x)
        torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-11, atol=1e-11)
        assert J.explain().strategy == "chain", J.explain()
        assert any(step.what == "rows together, of a stretch" and step.passes == 16 for step in J.explain().steps)
        assert J.certificate
    assert not any("sampled" in step.what for step in J.explain().steps)


def test_some_rows_of_a_chain():
    y, x = asked(CHAINS["tokens on both sides"])
    truth = row_loop(y, x).reshape(*y.shape, *x.shape)
    J = d(y)[:17] / d(x)
    torch.testing.assert_close(J.value, truth[:17], rtol=1e-11, atol=1e-11)
    assert J.explain().strategy == "chain"


def test_some_rows_of_a_chain_whose_first_stretch_has_no_structure():
    y, x = asked(CHAINS["attention, then tokens"])
    truth = row_loop(y, x).reshape(*y.shape, *x.shape)
    J = d(y)[:17] / d(x)
    torch.testing.assert_close(J.value, truth[:17], rtol=1e-11, atol=1e-11)
    assert J.explain().strategy == "chain"


@pytest.mark.parametrize("k", range(4))
def test_a_wrong_stretch_is_found(monkeypatch, k):
    y, x = asked(CHAINS["two blocks"])
    truth = row_loop(y, x)
    right = chained._carried

    def wrong(ask, stretch, rows, passes):
        passes = passes.clone()
        passes[k, 5 * k + 3] *= 1 + 1e-6 * (rows is not None) + 1e-3 * (rows is None)
        return right(ask, stretch, rows, passes)

    monkeypatch.setattr(chained, "_carried", wrong)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-11, atol=1e-11)
    assert "chain: a stretch was not what it seemed" in " ".join(J.explain().fallbacks)


def test_a_stretch_must_be_worth_its_samples():
    # 0 = y <- 1 <- 2 = x, nearly all work between 0 and 1
    chart = Flow([300, 300, 300], [[1], [2], []], [0.0] * 3, [1e6, 1.0, 0.0], (2,), False, 1.3, lambda t: t, lambda: None)
    assert stretches(chart, 300, 300) == ()
    chart.elements[1] = 1e6
    assert stretches(chart, 300, 300) == (1,)
    assert stretches(chart, 100, 300) == ()
