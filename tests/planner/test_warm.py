"""What two questions must share to share a plan."""

from dataclasses import replace

import numpy as np
import torch

from tests.planner.problems import row_loop
from wrt import d
from wrt._planner import warm


def long(x, operations=40):
    """So many operations that a glance from y does not reach x."""
    y = x.roll(1) * x
    for _ in range(operations):
        y = y.sin()
    return y


def key(y, x):
    return warm.key_of((d(y) / d(x)).ask)


def test_numbers_of_another_type_are_another_question(planned_from_the_start):
    single = torch.linspace(0.1, 1, 90, requires_grad=True)
    double = single.detach().double().requires_grad_()
    assert key(long(single), single) == key(long(single), single)
    assert key(long(single), single) != key(long(double), double)
    assert key(long(double), double) != key(long(single.double()), single)  # the type of x alone, out of sight
    for x in (single, double):
        y = long(x).double()
        J = d(y) / d(x)
        np.testing.assert_allclose(J.sparse().toarray(), row_loop(y, x).numpy(), rtol=1e-5, atol=1e-6)
        assert not J.explain().fallbacks
        assert J.certificate.tolerance < 1e-3 if x is single else J.certificate.tolerance < 1e-11


def test_what_a_plan_keeps_lives_on_one_device(monkeypatch):
    x = torch.linspace(0, 1, 90, requires_grad=True)
    ask = (d(x.sin()) / d(x)).ask
    here = warm.key_of(ask)
    ask.y.key.device = torch.device("meta")
    assert warm.key_of(replace(ask)) != here  # the same question, asked anew
