"""Calls that give a tensor another shape or other memory where it is: in a recording they do what they do without one."""

from collections.abc import Callable

import pytest
import torch

import wrt
from tests.torch._rows import agree
from wrt import d
from wrt.errors import GradientCut

Tensor = torch.Tensor
F64 = torch.float64


def numbers() -> Tensor:
    return torch.tensor([0.3, 0.5, 0.9, 0.1, 0.7, 0.2], dtype=F64)


def each(pieces: Callable[[Tensor], tuple[Tensor, ...]]) -> Callable[[Tensor], Tensor]:
    """Write into every piece of a tensor; plain torch allows it where nothing requires grad."""

    def run(a: Tensor) -> Tensor:
        whole = (a * a).view(3, 2)
        for k, piece in enumerate(pieces(whole)):
            piece.mul_(k + 2)
        return whole * 1

    return run


FOLLOWED: dict[str, Callable[[Tensor], Tensor]] = {
    "t_": lambda a: (a * 2).view(2, 3).t_() * a[0],
    "transpose_": lambda a: (a * 2).view(2, 3).transpose_(0, 1).sin(),
    "swapaxes_": lambda a: (a * 2).view(2, 3).swapaxes_(-1, 0).sin(),
    "unsqueeze_": lambda a: (a * 2).unsqueeze_(0).expand(2, 6) * a,
    "squeeze_": lambda a: (a * 2)[None].squeeze_() * a,
    "as_strided_": lambda a: (a * a).as_strided_((2, 2), (1, 2)) * 3,
    "turned, then written": lambda a: (a * a).view(2, 3).t_().mul_(2).unsqueeze_(0).add_(a[0]),
    "without gradients": lambda a: torch.no_grad()(lambda h: h.unsqueeze_(0))((a * 2).clone()) + a,
    "pieces of chunk": each(lambda h: h.chunk(3)),
    "pieces of split": each(lambda h: h.split([1, 2])),
    "pieces of unbind": each(lambda h: h.unbind(1)),
    "rows": each(tuple),
    "tensor_split": each(lambda h: h.tensor_split(2)),
    "sparse": lambda a: (a * (a > 0.25)).to_sparse().to_dense() * 2,
    "compressed": lambda a: a.view(2, 3).to_sparse_csr().to_dense() * 1,
}


def differences(f: Callable[[Tensor], Tensor]) -> Tensor:
    """Central differences of the plain run: exact enough for polynomials and sines."""
    columns = []
    for k in range(6):
        step = torch.zeros(6, dtype=F64)
        step[k] = 1e-5
        columns.append((f(numbers() + step) - f(numbers() - step)) / 2e-5)
    return torch.stack(columns, -1)


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_run_is_as_without_a_recording_and_the_derivative_that_of_the_run(name: str) -> None:
    f = FOLLOWED[name]
    expected, a = f(numbers()), numbers()
    with wrt.record():
        y = f(a)
    assert torch.equal(y, expected)
    assert not y.requires_grad
    slopes = differences(f)
    found = (d(y) / d(a)).value
    assert found.shape == slopes.shape
    assert torch.allclose(found, slopes, atol=1e-8)


def test_elements_of_a_tensor_that_was_turned_while_it_was_filled() -> None:
    a = numbers()
    with wrt.record() as t:
        h = torch.zeros(2, 3, dtype=F64)
        h[0, 1] = a[0]
        h.t_()
        h[2, 0] = a[1] * h[1, 0]
    assert t["h"].shape == (3, 2)
    assert float(d(h)[2, 0] / d(h)[1, 0]) == float(a[1])
    expected = torch.zeros(3, 2, 6, dtype=F64)
    expected[1, 0, 0], expected[2, 0, 0], expected[2, 0, 1] = 1.0, a[1], a[0]
    agree((d(h) / d(a)).value, expected)


@pytest.mark.parametrize("name", ["resize_", "resize_as_", "set_", "apply_", "map_"])
def test_numbers_that_nobody_can_follow_are_said_to_be_cut(name: str) -> None:
    calls = {
        "resize_": lambda h: h.resize_(2),
        "resize_as_": lambda h: h.resize_as_(torch.zeros(2)),
        "set_": lambda h: torch.empty(0, dtype=F64).set_(h) * 2,  # which no function mode sees
        "apply_": lambda h: h.apply_(lambda number: 2 * number),
        "map_": lambda h: h.map_(h.clone(), lambda one, other: one * other),
    }
    a = numbers()
    with wrt.record():
        y = calls[name](a * 1)
    assert torch.equal(y, calls[name](numbers()))
    with pytest.raises(GradientCut):
        (d(y) / d(a)).value
    assert "set_" not in vars(Tensor)  # nothing stands in the way any more


def test_nested_tensors_pass_through() -> None:
    a = numbers()
    with wrt.record():
        padded = torch.nested.to_padded_tensor(torch.nested.nested_tensor([a[:2], a[2:]]), 0.0)
    assert padded.shape == (2, 4)
