"""Some elements of x go on to y, others went into something whose gradient is cut: the cut is blamed, not the selection."""

import pytest
import torch
from torch import nn

import wrt
from wrt import d


def test_steps_before_a_detached_state_blame_the_detach():
    cell, xs = nn.RNNCell(3, 4), torch.randn(5, 2, 3, requires_grad=True)
    with wrt.record():
        h = torch.zeros(2, 4)
        for t in range(5):
            h = cell(xs[t], h)
            if t == 2:
                h = h.detach()
        y = h.sum()
    before, after = wrt.why(y, d(xs)[0]), wrt.why(y, d(xs)[4])
    assert (before[0].cause, before[0].certain) == ("detached_hidden_state", True)
    assert before[0].where.text == "h = h.detach()"
    assert not after


def test_an_error_carries_what_why_would_say():
    x = torch.ones(3, requires_grad=True)
    with wrt.record():
        h = x * 2
        y = (h.detach() * 3).sum()
    with pytest.raises(wrt.errors.GradientCut) as raised:
        (d(y) / d(x)).value
    assert (raised.value.finding.cause, raised.value.finding.where.text) == ("detach", "y = (h.detach() * 3).sum()")
    with pytest.raises(wrt.errors.NoPath) as raised:
        (d(x.sum()) / d(torch.ones(3, requires_grad=True))).value
    assert raised.value.finding is None
