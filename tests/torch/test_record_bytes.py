"""Values that go around torch as bytes, and numbers read too late to matter."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

import wrt
from wrt import d
from wrt.errors import NoPath


def _saved(h):
    memory = io.BytesIO()
    torch.save([h], memory)
    memory.seek(0)
    return torch.load(memory)[0]


WAYS = {
    "pickle": lambda h: pickle.loads(pickle.dumps(h)),
    "pickle of a parameter": lambda h: pickle.loads(pickle.dumps(torch.nn.Parameter(h.detach()))),
    "copy.copy": copy.copy,
    "torch.save": _saved,
    "storage": lambda h: torch.empty(0).set_(h.untyped_storage()),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_went_through_bytes_is_refused_and_never_called_zero(way):
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with wrt.record():
        h = x * 2
        y = WAYS[way](h).detach().sum()
    with pytest.raises(NoPath):
        (d(y) / d(x)).value
    assert wrt.why(y, x)[0].cause in ("serialized", "parameter_wrap", "copied_module", "detach")


def test_the_error_names_the_line_and_the_step_out():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with wrt.record():
        y = copy.copy(x * 2).sum()
    with pytest.raises(NoPath) as caught:
        (d(y) / d(x)).value
    what, stands, write = str(caught.value).splitlines()
    assert what == "no gradient path from x to y"
    assert "y = copy.copy(x * 2).sum()  takes x out of torch (untyped_storage)" in stands
    assert write == "  keep it a tensor on that line; wrt.why(y, x) says more"


def test_who_only_compares_memory_takes_no_number_out():
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with wrt.record():
        assert not x.is_shared()
        y = (w * 2).sum()
    assert not (d(y) / d(x)).connected


def test_a_number_read_after_y_was_done_cannot_be_in_it():
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with wrt.record():
        y = (w * 2).sum()
        y.item()
        x.sum().item()
    assert (d(y) / d(x)).value.tolist() == [0.0, 0.0, 0.0]
    (found,) = wrt.why(y, x)
    assert found.cause == "unused_input"
    assert found.certain


def test_a_number_read_after_y_was_done_may_be_written_where_others_hold_its_memory():
    x, w = torch.ones(3, requires_grad=True), torch.ones(3)
    with wrt.record():
        y = w * 2
        y.numpy()[0] = x.sum().item()
    with pytest.raises(NoPath):
        (d(y) / d(x)).value
