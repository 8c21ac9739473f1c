"""Whether a leaf requires grad may change after the run; the run is asked about as it was."""

from __future__ import annotations

import torch
from torch import nn

import wrt
from tests._snapshot import unchanged
from wrt import d

DOUBLE = torch.float64


def test_an_input_that_requires_grad_since_the_run_is_found_in_it() -> None:
    x = torch.linspace(1, 2, 3, dtype=DOUBLE)
    t = wrt.trace(lambda x: x**3, x)
    x.requires_grad_()
    J = d(t.output) / d(x)
    assert J.connected
    assert torch.allclose(J.value, torch.diag(3 * x**2))
    assert torch.allclose(J[1].value, torch.diag(3 * x**2)[1])
    assert torch.allclose(J @ torch.ones(3, dtype=DOUBLE), 3 * x**2)
    assert torch.allclose((d(t.output[1]) / d(x) / d(x)).value[1], torch.diag(6 * x)[1])


def test_what_is_computed_from_it_afterwards_is_asked_about_too() -> None:
    x = torch.linspace(1, 2, 3, dtype=DOUBLE)
    t = wrt.trace(lambda x: x**3, x)
    later = x.requires_grad_() ** 2
    assert torch.allclose((d(later) / d(x)).value, torch.diag(2 * x))
    assert torch.allclose((d(t.output) / d(x)).value, torch.diag(3 * x**2))


def test_parameters_frozen_or_released_since_the_run_are_found_in_it() -> None:
    x = torch.linspace(1, 2, 3, dtype=DOUBLE)
    for before in (True, False):
        layer = nn.Linear(3, 2).double().requires_grad_(before)
        t = wrt.trace(layer, x)
        layer.requires_grad_(not before)
        with unchanged(layer, x):
            leaves = d(t.output) / d(layer)
            assert torch.equal(leaves["bias"].value, torch.eye(2, dtype=DOUBLE))
            assert torch.equal(leaves["weight"].value[0, 0], x)
            assert torch.equal((d(t.output) / d(t.inputs[0])).value, layer.weight)
