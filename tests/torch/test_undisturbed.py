"""Asking leaves no trace: not on `.grad`, hooks, modes, buffers or random states, also when it fails in the middle."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import wrt
from tests._snapshot import unchanged
from tests.torch._rows import agree, row_loop
from wrt import d


def x_(count: int = 3) -> torch.Tensor:
    return torch.linspace(0.5, 2.0, count, dtype=torch.float64).requires_grad_()


def test_grad_is_untouched_and_the_next_backward_is_not_tripled() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    x = torch.randn(5, 3, requires_grad=True)
    loss = model(x).sum()
    (gradient,) = torch.autograd.grad(loss, model[0].weight, retain_graph=True)
    with unchanged(x, loss, model):
        for answer in (d(loss) / d(model)).values():
            answer.value
        (d(loss) / d(x)).value
        (d(loss) / d(x) / d(x)).value
    loss.backward()
    fresh = model[0].weight.grad.clone()
    model[0].weight.grad = None
    assert torch.equal(fresh, gradient)


@pytest.mark.parametrize("batch", [1, 4])
def test_retained_gradients_keep_what_they_had(batch: int) -> None:
    x = x_(batch)
    h = x * 2
    h.retain_grad()
    y = torch.sin(h)
    y.sum().backward(retain_graph=True)
    before = h.grad
    with unchanged(x, h, y):
        (d(y) / d(x)).value
        (d(y)[0] / d(x)).value
        (d(y) / d(x)) @ torch.ones(batch)
        torch.ones(batch) @ (d(y) / d(x))
    assert h.grad is before


def test_retained_gradients_that_were_never_filled_stay_empty() -> None:
    x = x_()
    h = x * 2
    h.retain_grad()
    y = torch.sin(h)
    with unchanged(x, h, y):
        (d(y) / d(x)).value
    assert h.grad is None


def test_user_hooks_act_and_are_named() -> None:
    x = x_()
    h = x * 2
    h.register_hook(lambda g: 10 * g)
    y = h.sum()
    with unchanged(x, h, y):
        J = d(y) / d(x)
        assert J.value.tolist() == [20.0] * 3
    assert "note         a hook of yours acts on h: the answer is the gradient you train with" in str(J.explain())
    model = nn.Linear(3, 2)
    model.register_full_backward_hook(lambda module, given, taken: None)
    z = torch.ones(3, requires_grad=True)
    loss = model(z).sum()
    J = d(loss) / d(z)
    J.value
    assert "on modules: the answer is the gradient you train with" in str(J.explain())


class Counting(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return function(*args, **(kwargs or {}))


def test_modes_around_the_question_change_nothing() -> None:
    x = x_()
    y = torch.outer(torch.sin(x), x).sum(0)
    expected = row_loop(y, x)
    for mode in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu"), torch.enable_grad(),
                 torch.autograd.detect_anomaly(check_nan=False), Counting()):
        with mode, unchanged(x, y):
            agree((d(y) / d(x)).value, expected)
            agree((d(y)[0] / d(x)).value, expected[0])
            for way in ("pull", "push"):
                with wrt.options(way=way):
                    agree((d(y) / d(x)).value, expected)
            agree((d(y) / d(x)) @ torch.ones(3), expected @ torch.ones(3, dtype=torch.float64))
            (d(y)[0] / d(x) / d(x)).value


class Interrupted(torch.autograd.Function):
    """A backward in which the user presses Ctrl-C, or something breaks, after some passes."""

    left = 0
    problem: type[BaseException] = KeyboardInterrupt

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, u: torch.Tensor) -> torch.Tensor:
        Interrupted.left -= 1
        if Interrupted.left < 0:
            raise Interrupted.problem("in the middle")
        return u * 2


@pytest.mark.parametrize("passes", [0, 1, 2])
@pytest.mark.parametrize("problem", [KeyboardInterrupt, ZeroDivisionError, RuntimeError])
def test_an_exception_in_the_middle_leaves_nothing_changed(problem: type[BaseException], passes: int) -> None:
    x = x_()
    x.grad = torch.ones(3, dtype=torch.float64)
    h = x * 3
    h.retain_grad()
    y = Interrupted.apply(h) * x
    Interrupted.problem = problem
    questions = [
        lambda: (d(y) / d(x)).value,
        lambda: (d(y)[0] / d(x)).value,
        lambda: (d(y) / d(x)) @ torch.ones(3),
        lambda: torch.ones(3) @ (d(y) / d(x)),
        lambda: (d(y) / d(x) / d(x)).value,
        lambda: [leaf.value for leaf in d(y) / d([x, h])],  # type: ignore[operator]
    ]
    for ask in questions:
        Interrupted.left = passes
        with unchanged(x, h, y):
            try:
                ask()
            except (KeyboardInterrupt, ZeroDivisionError, RuntimeError) as caught:
                assert isinstance(caught, (problem, RuntimeError))  # noqa: PT017
