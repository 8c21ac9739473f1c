"""`why(error)` of torch's "element 0 of tensors does not require grad": in a recorded run, the line that is to blame."""

from __future__ import annotations

import pytest
import torch

import wrt


def error_of(run):
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad") as caught, wrt.record():
        run()
    return caught.value


def detached():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    h = x.detach() * 2  # <- detach
    h.sum().backward()


def without_gradients():
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        out = model(torch.ones(2))  # <- no_grad
    out.sum().backward()


def nothing_is_trained():
    data = torch.tensor([1.0, 2.0])  # <- not_requires_grad
    (data * 2).sum().backward()


def an_index():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    chosen = x.argmax()  # <- argmax
    torch.autograd.grad(chosen.float(), x)


def made_again():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = torch.tensor(x.sum())  # <- retensor
    loss.backward()


@pytest.mark.parametrize("run", [detached, without_gradients, nothing_is_trained, an_index, made_again])
def test_the_line_that_lost_the_history_is_named(run):
    found = wrt.why(error_of(run))[0]
    assert found.where is not None
    assert found.where.text.endswith(f"# <- {found.cause}")
    assert found.certain


def test_one_finding_for_each_reason():
    def run():
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
        with torch.no_grad():
            loss = model(torch.ones(2)).sum()
        loss.backward()

    assert len(wrt.why(error_of(run))) == 1


def test_without_a_recording_it_is_a_hint():
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2).sum().backward()
    (found,) = wrt.why(caught.value)
    assert found.cause == "not_requires_grad"
    assert not found.certain
