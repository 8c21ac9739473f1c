"""A watch sees every backward pass of a PyTorch loop, whole, and leaves nothing behind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import wrt


class TwoHeads(nn.Module):
    """Each loss reaches one head only."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.left, self.right = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor, head: str) -> torch.Tensor:
        return getattr(self, head)(self.body(x).tanh()).square().mean()


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(5, 3)


def test_a_backward_that_leaves_parameters_out_is_a_step_of_its_own(x: torch.Tensor) -> None:
    model = TwoHeads()
    with wrt.watch(model, every=1) as w:
        for head in ("left", "right", "left"):
            model(x, head).backward()
            model.zero_grad()
    assert w.step == 3
    names = [{layer.name.split(".")[0] for layer in seen} for _, seen in w.history]
    assert names == [{"body", "left"}, {"body", "right"}, {"body", "left"}]


def test_the_last_step_is_noted_when_it_ends_and_not_when_the_next_begins(x: torch.Tensor) -> None:
    model = TwoHeads()
    with wrt.watch(model, every=1) as w:
        model(x, "left").backward()
        assert w.step == 1
        assert w.latest["left.weight"].max == pytest.approx(float(model.left.weight.grad.abs().max()))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("inside", ["body", "head"])
def test_a_checkpoint_inside_does_not_split_a_step(x: torch.Tensor, reentrant: bool, inside: str) -> None:
    body, head = nn.Linear(3, 3), nn.Linear(3, 1)
    model = nn.Sequential(body, head)
    first, second = (
        (lambda x: checkpoint(body, x, use_reentrant=reentrant), head)
        if inside == "body"
        else (body, lambda x: checkpoint(head, x, use_reentrant=reentrant))
    )
    leaf = x.clone().requires_grad_()
    with wrt.watch(model, every=1) as w:
        for _ in range(2):
            second(first(leaf)).sum().backward()
    assert w.step == 2
    assert {layer.name for layer in w.latest} == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_an_error_in_the_middle_of_a_backward_leaves_the_next_step_whole(x: torch.Tensor) -> None:
    model = TwoHeads()

    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            return x.clone()

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            raise RuntimeError("broken")

    with wrt.watch(model, every=1) as w:
        with pytest.raises(RuntimeError, match="broken"):
            model.left(Breaks.apply(model.body(x))).sum().backward()
        model.zero_grad()
        model(x, "left").backward()
    assert {layer.name.split(".")[0] for layer in w.latest} == {"body", "left"}


def test_a_function_that_returns_gradients_is_watched_as_it_is(x: torch.Tensor) -> None:
    with wrt.watch(None, every=2) as w:
        grad = w.around(torch.func.grad(lambda p, x: (x @ p["a"]).square().mean()))
        given = {"a": torch.ones(3, 1)}
        found = [grad(given, x) for _ in range(3)]
    assert [step for step, _ in w.history] == [0, 2]
    assert w.latest["a"].max == pytest.approx(float(found[-1]["a"].abs().max()))


def test_of_a_value_and_a_gradient_the_gradient_is_looked_at() -> None:
    with wrt.watch(None, every=1) as w:
        answer = w.around(lambda: (np.float32(3.0), {"a": np.array([0.0, -4.0])}))()
    assert answer[0] == 3.0
    assert w.latest["a"].max == 4.0


def test_nothing_is_noted_after_the_end() -> None:
    with wrt.watch(None, every=1) as w:
        pass
    w({"a": np.ones(2)})
    assert w.step == 0
