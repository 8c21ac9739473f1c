"""No gradient at all: some elements go another way than others, and inputs that do not require grad."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import wrt
from wrt import d

# ---------------------------------------------------------------- the cut is blamed, not the selection


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


# ---------------------------------------------------------------- a recording differentiates by plain inputs too


def dead() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        net[0].bias.fill_(-100)
    return net


def causes(found: wrt.Findings) -> list[str]:
    return [finding.cause for finding in found]


def test_zeros_by_a_plain_input_are_explained_before_its_requires_grad() -> None:
    t = wrt.trace(dead(), torch.ones(3))
    J = d(t.output) / d(t.inputs[0])
    assert not J.value.any()
    assert causes(J.why()) == causes(wrt.why(t.output, t.inputs[0])) == ["dead_relu", "not_requires_grad"]


def test_so_are_zeros_of_a_run_in_which_nothing_requires_grad() -> None:
    with wrt.record():
        x = torch.ones(3)
        y = (x - 100).relu() * 2
    assert causes(wrt.why(y, x)) == ["dead_relu", "not_requires_grad"]


def test_a_plain_input_with_a_derivative_only_does_not_require_grad() -> None:
    with wrt.record():
        x = torch.ones(3)
        y = x.relu().sum()
    assert causes(wrt.why(y, x)) == ["not_requires_grad"]


def test_elements_of_a_tensor_that_is_filled_in_place_can_be_asked_why() -> None:
    x = torch.tensor(0.5, requires_grad=True)
    with wrt.record():
        h = torch.zeros(5)
        h[0] = x
        h[1] = (h[0] - 10).relu()
        h[2] = h[1].detach()
        h[3] = h[2] * 2
        h[4] = h[1] * 2
    assert causes((d(h)[3] / d(h)[1]).why())[0] == "detach"
    assert causes((d(h)[4] / d(h)[0]).why())[0] == "dead_relu"
    assert not (d(h)[4] / d(h)[1]).why()


def test_elements_without_a_number_of_their_own_are_refused_in_words() -> None:
    with wrt.record():
        h = torch.zeros(4)
        h[1:3][0] = 3
        h[3] = h[1] * 2
    with pytest.raises(wrt.errors.NotRecorded) as refused:
        (d(h)[3] / d(h)[1]).why()
    assert str(refused.value) == (
        "why() of elements as they were between two writes\n"
        "  the graph of the run has no number for them: they were written through a view, or not at all\n"
        "  ask about the whole tensor, wrt.why(y, x), or about what was written there"
    )
