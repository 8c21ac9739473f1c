"""How large a tensor is, read off what its node saved: as torch's own metadata tells it, and enough to tell shapes apart."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.torch.test_rules import rows_of, spot
from wrt._backends.torch.compat import reachable
from wrt._backends.torch.rules.extent import COUNTS, numbers
from wrt._backends.torch.rules.families import One
from wrt._backends.torch.rules.program import program
from wrt._backends.torch.rules.table import RULES

F64 = torch.float64


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def test_every_count_is_that_of_the_metadata():
    x, w = random(1, 3, 4).requires_grad_(), random(5, 4, seed=1).requires_grad_()
    flat = x.squeeze(0) @ w.t()  # (3, 5)
    h = F.linear(x, w, random(5)) + F.linear(x[0, 0], w, random(5)) + (x.mT.reshape(-1)[:5])
    y = h.squeeze() + flat.view(1, 3, 5).squeeze((0, 1)).view(3, 5) + torch.stack([flat.view(-1)]).squeeze(0).view(3, 5)
    met = set()
    for node in reachable(y.grad_fn):
        met.add(type(node).__name__)
        assert numbers((node, 0)) == math.prod(node._input_metadata[0].shape)
    assert met >= COUNTS.keys()


def slope(name, x):
    if name in ("PowBackward0", "SoftplusBackward0"):
        return x**3 if name == "PowBackward0" else F.softplus(x)
    words = {"HardtanhBackward0": F.hardtanh, "LeakyReluBackward0": F.leaky_relu, "SiluBackward0": F.silu, "EluBackward0": F.elu}
    found = words.get(name) or getattr(F if name == "GeluBackward0" else torch, name.removesuffix("Backward0").lower())
    return found(x)


@pytest.mark.parametrize("name", sorted(name for name, rule in RULES.items() if isinstance(rule, One) and rule.like))
def test_a_gradient_in_the_shape_of_a_view_is_not_taken_for_one_in_another(name):
    """As many rows as the first axis is long: numbers of other rows would meet, if the shape were not looked at."""
    x = random(16).abs().add(0.5).requires_grad_()
    h = slope(name, x.view(4, 1, 4) * 1.1)
    assert type(h.grad_fn).__name__ == name
    y = slope(name, h.view(4, 4).abs() + 0.5)
    for _ in range(2):  # when it is first met, and when it is known
        found = program(spot(y), [spot(x)])
        for rows in (2, 4, 16):
            seeds = random(rows, 4, 4, seed=rows)
            torch.testing.assert_close(found.pull(seeds)[0], rows_of(y, [x], seeds)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 5), (2, 1, 5)])
def test_a_term_that_was_stretched_is_summed_up(shape):
    """By the counts of a product and of its view, which is what they are read off."""
    x, w = random(4).requires_grad_(), random(5, 4, seed=1)
    for term in (F.linear(x, w, random(5)), F.linear(x[None], w, random(5)), (x[None] @ w.t()).squeeze(0)):
        y = (term + random(*shape, seed=2)).tanh() - term * 2
        for _ in range(2):
            found = program(spot(y), [spot(x)])
            seeds = random(7, *y.shape)
            torch.testing.assert_close(found.pull(seeds)[0], rows_of(y, [x], seeds)[0], rtol=1e-12, atol=1e-12)
