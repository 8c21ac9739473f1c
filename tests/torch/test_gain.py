"""When the rules of a new graph are looked up: where they gain, and never where nobody needs them."""

import pytest
import torch

from tests.torch.test_rules import without_hooks
from wrt._backends.torch.backend import BACKEND
from wrt._backends.torch.rules import gain
from wrt._backends.torch.rules.table import RULES as TABLE
from wrt._backends.torch.sweep import RULES, VMAP
from wrt._backends.torch.trusted import TRUSTED


@pytest.fixture(autouse=True)
def nobody_watches(monkeypatch):
    without_hooks(monkeypatch)


def rung(y, x, *, of_all):
    """How rows are swept in one batch: all of a Jacobian, or some."""
    Y, X = BACKEND.lift(y), BACKEND.lift(x)
    linear, trusted = BACKEND.live.linear(Y, [X]), BACKEND.live.trusted(Y)
    assert trusted
    block = linear.pull_at_once(torch.eye(y.numel(), dtype=y.dtype)[: None if of_all else -1], trusted)
    rows = [torch.autograd.grad(one, x, retain_graph=True)[0] for one in y[:3]]
    torch.testing.assert_close(block[:3], torch.stack(rows), rtol=1e-11, atol=1e-11)
    return linear.swept_by


def numbers(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


def waves(x, count=3):
    for _ in range(count):
        x = x.sin() * 1.1
    return x


def cell(x, count=12):
    weights = torch.eye(x.numel(), dtype=x.dtype)
    for _ in range(count):
        x = torch.tanh(torch.nn.functional.linear(x, weights, weights[0]))
    return x


@pytest.mark.parametrize(
    ("f", "n", "expected"),
    [
        (waves, 30, VMAP),  # small
        (waves, 400, RULES),  # large
        (lambda x: torch.nn.functional.silu(waves(x)), 30, VMAP),  # taken apart, but small
        (lambda x: torch.nn.functional.silu(waves(x)), 160, RULES),
        (lambda x: waves(x, 30), 30, VMAP),  # more operations than a glance sees
        (lambda x: waves(x, 30), 400, RULES),
        (cell, 16, VMAP),
        (lambda x: ((x[:, None] - x) ** 2).sum(1), 50, RULES),  # wide on the way
    ],
)
def test_rules_are_looked_up_where_they_gain(f, n, expected):
    x = numbers(n)
    assert rung(f(x), x, of_all=False) == expected
    assert rung(f(x), x, of_all=True) == RULES


def test_a_device_waits_for_operations_to_be_started(monkeypatch):
    y, x = (BACKEND.lift(t) for t in (lambda x: (x.sin(), x))(numbers(20)))
    monkeypatch.setattr(y.key, "device", torch.device("cuda"))
    assert gain.come_first(y)
    monkeypatch.setattr(gain, "FEW_ROWS", 20)
    assert not gain.come_first(y)
    assert not gain.gains(y, [x], gain.FEW_ROWS)
    assert gain.gains(y, [x], gain.FEW_ROWS + 1)


def test_what_is_named_here_is_trusted_and_has_a_rule():
    assert TRUSTED >= gain.TAKEN_APART
    assert TABLE.keys() >= gain.TAKEN_APART
