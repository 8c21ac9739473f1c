"""What proves a push on a device: a pull by rules that the engine has confirmed, other ones than those that pushed.

On a CPU, as if the engine were far away.
"""

from itertools import pairwise

import pytest
import torch
from torch import nn

from tests.torch._rows import row_loop
from tests.torch.test_rules import as_in_a_new_process
from wrt import d
from wrt._backends.torch import sweep
from wrt._backends.torch.forward import program as forward
from wrt._backends.torch.rules import proof
from wrt._run.tally import ALONE, BY_RULES

__all__ = ["as_in_a_new_process"]  # a fixture for all of these, too


@pytest.fixture(autouse=True)
def far_away(monkeypatch):
    monkeypatch.setattr(sweep, "_far", lambda tensor: True)


def network(*widths):
    torch.manual_seed(0)
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1]).double()


def random(n):
    return torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


@pytest.mark.parametrize("widths", [(6, 40, 300), (200, 50, 3, 50, 200)], ids=["tall", "waist"])
def test_the_proof_is_a_pull_by_rules(widths, planned_from_the_start):
    f, x = network(*widths), random(widths[0])
    for _ in range(3):
        y = f(x)
        J = d(y) / d(x)
        torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-13)
        assert J.certificate.probe == BY_RULES
        assert [step.rung for step in J.explain().steps if step.what == "certificate"] == ["rules"]


@pytest.mark.parametrize("factor", [0.0, 1.001, -1.0])
def test_a_wrong_rule_of_a_push_is_found(factor, monkeypatch):
    right = forward.BY_KIND.named["TanhBackward0"]
    forward.BY_KIND.clear()
    monkeypatch.setitem(forward.BY_KIND.named, "TanhBackward0", lambda *given: factor * right(*given))
    x = random(6)
    y = network(6, 40, 300)(x)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-13)
    assert J.certificate
    assert J.explain().steps[0].rung != sweep.FORWARD or J.explain().fallbacks
    forward.BY_KIND.clear()


def test_a_wrong_rule_of_the_pull_is_not_used(monkeypatch):
    """It disagrees with the engine when it is first met."""
    monkeypatch.setattr(proof, "_close", lambda ruled, plain: False)
    x = random(6)
    y = network(6, 40, 300)(x)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-13)
    assert J.certificate.probe == ALONE


def test_with_a_hook_the_engine_is_asked():
    x = random(6)
    h = x * 1.0
    handle = h.register_hook(lambda gradient: gradient * 2)
    y = network(6, 40, 300)(h)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-13)
    assert J.certificate.probe != BY_RULES
    handle.remove()
