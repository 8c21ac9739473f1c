"""Nested cuts: rows carried through several tensors; stretches that do not mix samples or tokens take a few passes."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from tests.plan.problems import row_loop
from wrt import d
from wrt._core.flow import Flow
from wrt._plan import chain
from wrt._plan.chain import stretches
from wrt._run import run


def weights(*shape):
    made = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))
    return made / shape[0] ** 0.5


def each_token(x, d=16):
    return x + F.gelu(x @ weights(d, 8 * d)) @ weights(8 * d, d)


def mixed(x):
    return x + torch.softmax(x @ x.T, -1) @ x


def sampled_calls(J):
    return sum(step.calls for step in J.explain().steps if step.what == "sampled rows")


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
        assert any(step.what == "rows together" and step.passes == 16 * step.calls for step in J.explain().steps)
        assert J.certificate
    assert not any("sampled" in step.what for step in J.explain().steps)


def test_a_diagonal_asked_for_first_leaves_the_chain_to_the_whole():
    y, x = asked(CHAINS["tokens on both sides"])
    truth = row_loop(y, x)
    first, again = d(y) / d(x), d(y) / d(x)
    for J in (first, again):
        torch.testing.assert_close(J.diagonal().flatten(), truth.diagonal(), rtol=1e-11, atol=1e-11)
    assert not any("sampled" in step.what for step in again.explain().steps)  # that was found out before
    J = d(y) / d(x)
    torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-11, atol=1e-11)
    assert J.explain().strategy == "chain"


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


class Attention(torch.nn.Module):
    """Heads that do not mix, with a residual, then a network for each token."""

    def __init__(self, d, heads):
        super().__init__()
        torch.manual_seed(0)
        self.heads = heads
        self.norm, self.mix, self.out = torch.nn.LayerNorm(d), torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d)

    def forward(self, x):
        t, d = x.shape
        q, k, v = (one.reshape(t, self.heads, -1).transpose(0, 1) for one in self.mix(self.norm(x)).chunk(3, -1))
        mixed = (q @ k.transpose(1, 2)).tril().softmax(-1) @ v
        return each_token(x + self.out(mixed.transpose(0, 1).reshape(t, d)))


def test_a_residual_is_the_sum_of_its_branches_and_heads_travel_together():
    y, x = asked(Attention(16, 4).double(), (24, 16))
    truth = row_loop(y, x)
    for _ in range(2):
        J = d(y) / d(x)
        torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-11, atol=1e-11)
        assert "in 2 branches" in J.explain().because, J.explain()
        assert J.certificate
    assert J.explain().passes < 384 // 2


@pytest.mark.parametrize("before", [each_token, mixed])
def test_what_lies_before_a_residual_is_multiplied_into_its_branches(before):
    attention = Attention(16, 4).double()
    y, x = asked(lambda x: before(attention(x)), (24, 16))
    truth = row_loop(y, x)
    for _ in range(2):
        J = d(y) / d(x)
        torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-11, atol=1e-11)
        assert J.explain().strategy == "chain", J.explain()
        assert J.certificate


def test_the_stretch_that_must_mix_everything_is_not_sampled_as_a_whole():
    y, x = asked(Attention(16, 4).double(), (24, 16))
    J = d(y) / d(x)
    assert J.value is not None
    calls = Counter[str]()
    for step in J.explain().steps:
        calls[step.what] += step.calls
    assert calls["sampled rows"] == calls["rows together"] + 1  # the question itself, and each stretch that was taken


@pytest.mark.parametrize("k", range(8))
def test_a_wrong_stretch_is_found(monkeypatch, k):
    y, x = asked(CHAINS["two blocks"] if k % 2 else Attention(16, 4).double(), (24, 16))
    truth = row_loop(y, x)
    right = run.from_passes

    def wrong(ask, compression, passes):
        passes = passes.clone()
        passes[k % len(passes), 5 * k + 3] += 1e-6 * 10 ** (k // 2)
        return right(ask, compression, passes)

    monkeypatch.setattr(run, "from_passes", wrong)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-11, atol=1e-11)
    assert J.explain().fallbacks[0].startswith("chain, pull: ")
    assert J.explain().strategy == "direct"
    assert J.certificate


def test_a_stretch_must_be_worth_its_samples():
    # 0 = y <- 1 <- 2 = x, nearly all work between 0 and 1
    shape = SimpleNamespace(shape=(300,))
    chart = Flow(
        [300] * 3, [[1], [2], []], [0.0] * 3, [1e6, 1.0, 0.0], (2,), False, 1.3, lambda t: shape
    )
    assert stretches(chart, 300, 300) == ()
    chart.elements[1] = 1e6
    assert stretches(chart, 300, 300) == (1,)
    assert stretches(chart, 100, 300) == ()


def test_stretches_are_sampled_only_where_a_direct_sweep_takes_much_longer(monkeypatch):
    monkeypatch.setattr(chain, "SAMPLE_SECONDS", 1.0)
    y, x = asked(CHAINS["tokens on both sides"])
    J = d(y) / d(x)
    torch.testing.assert_close(J.value.reshape(y.numel(), -1), row_loop(y, x), rtol=1e-11, atol=1e-11)
    assert J.explain().strategy == "direct"
    assert sampled_calls(J) == 1  # the question itself


def test_stretches_that_mix_everything_are_not_sampled():
    layers = [(weights(300, 40), weights(40, 300)) for _ in range(3)]

    def network(x):
        for inner, outer in layers:
            x = x + torch.tanh(x.sin() @ inner) @ outer
        return torch.sin(x)

    y, x = asked(network, (300,))
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-11)
    assert sampled_calls(J) <= 1
