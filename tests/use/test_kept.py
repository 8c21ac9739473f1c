"""A model that runs inside `kept` leaves no trace, not even in the version counters of its buffers."""

from __future__ import annotations

import torch
from torch import nn

from wrt.extend import kept


def test_buffers_are_the_same_tensors_at_the_same_version() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    model[1].running_mean = model[0].running_mean  # one buffer in two places
    before = [(buffer, buffer._version, buffer.clone()) for buffer in model.buffers()]
    with kept(model):
        model(torch.randn(4, 3))
        assert model[0].running_mean is model[1].running_mean
        assert float(model[0].running_mean.abs().max()) > 0
    for (buffer, version, numbers), now in zip(before, model.buffers(), strict=True):
        assert now is buffer
        assert buffer._version == version
        assert torch.equal(buffer, numbers)


def test_a_scripted_model_has_its_numbers_back() -> None:
    model = torch.jit.script(nn.Sequential(nn.BatchNorm1d(3)))
    with kept(model):
        model(torch.randn(4, 3))
    assert not any(buffer.any() for name, buffer in model.named_buffers() if name.endswith(("mean", "tracked")))


def test_random_states_are_put_back_after_an_error() -> None:
    model = nn.Linear(2, 2)
    before = torch.get_rng_state()
    try:
        with kept(model):
            torch.randn(3)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert torch.equal(before, torch.get_rng_state())
