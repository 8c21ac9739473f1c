"""Operations that torch refuses on tensors with a history run, inside a recording, as they do outside of it."""

from typing import Any

import pytest
import torch

import wrt
from wrt import d, errors


def test_a_sum_of_floats_as_whole_numbers_is_recorded() -> None:
    counts = torch.tensor([1.0, 2.0, 3.0])
    with wrt.record():
        offsets = torch.cumsum(counts, 0, dtype=torch.int32)
    assert offsets.tolist() == [1, 3, 6]


class Kernel(torch.autograd.Function):
    """Like some kernels of other libraries: it has no gradient by x, and refuses an x that requires one."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        if ctx.needs_input_grad[0]:
            raise RuntimeError("no gradients with respect to x")
        ctx.save_for_backward(x)
        return x * scale

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor]:
        (x,) = ctx.saved_tensors
        return None, gradients[0] * x


def test_a_custom_function_that_refuses_an_input_with_grad_runs_as_without_a_recording() -> None:
    x, scale = torch.tensor([2.0, 5.0]), torch.ones(2, requires_grad=True)
    with wrt.record():
        y = Kernel.apply(x, scale)
    assert torch.equal((d(y) / d(scale)).value, torch.diag(x))
    with pytest.raises(errors.NoPath):
        (d(y) / d(x)).value


def test_its_own_error_reaches_the_user() -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="no gradients with respect to x"), wrt.record():
        Kernel.apply(x, torch.ones(2))


def test_a_function_can_be_traced_by_torchscript_inside() -> None:
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    with wrt.record():
        script = torch.jit.trace(lambda a: a * a, x)
        y = script(x)
    assert torch.equal((d(y) / d(x)).value, torch.diag(2 * x.detach()))


def test_swapped_tensors_are_refused_in_three_lines() -> None:
    with wrt.record():
        a = torch.ones(3) * 2
        b = torch.zeros(3)
        with pytest.raises(errors.EngineRefused, match="inside of a recording") as refused:
            torch.utils.swap_tensors(a, b)
    assert str(refused.value).count("\n") == 2
    torch.utils.swap_tensors(torch.ones(2), torch.zeros(2))  # as ever afterwards
