"""`/ d(z)` again: Hessians, mixed and third derivatives, elements of them, next to closed forms."""

import pytest
import torch

from tests._snapshot import unchanged
from tests.torch._rows import agree
from wrt import d
from wrt.errors import NotATensor, WrongShape


@pytest.fixture
def cubic() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """y_i = x_i^3 z_i + z_i^2"""
    x = torch.tensor([1.0, 2.0, -1.5], dtype=torch.float64, requires_grad=True)
    z = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    return x**3 * z + z**2, x, z


def along_the_diagonal(values: torch.Tensor, axes: int) -> torch.Tensor:
    made = torch.zeros((len(values),) * axes, dtype=values.dtype)
    for k, value in enumerate(values):
        made[(k,) * axes] = value
    return made


def test_hessians_mixed_and_third_derivatives(cubic: tuple[torch.Tensor, ...]) -> None:
    y, x, z = cubic
    a, b = x.detach(), z.detach()
    with unchanged(y, x, z):
        agree((d(y) / d(x) / d(x)).value, along_the_diagonal(6 * a * b, 3))
        agree((d(y) / d(x) / d(z)).value, along_the_diagonal(3 * a**2, 3))
        agree((d(y) / d(z) / d(x)).value, along_the_diagonal(3 * a**2, 3))
        agree((d(y) / d(z) / d(z)).value, along_the_diagonal(2 * torch.ones_like(a), 3))
        agree((d(y) / d(x) / d(x) / d(x)).value, along_the_diagonal(6 * b, 4))
        agree((d(y) / d(x) / d(x) / d(z)).value, along_the_diagonal(6 * a, 4))
        agree((d(y) / d(z) / d(z) / d(z)).value, along_the_diagonal(0 * a, 4))


def test_elements_of_higher_derivatives(cubic: tuple[torch.Tensor, ...]) -> None:
    y, x, z = cubic
    assert float(d(y)[1] / d(x)[1] / d(z)[1]) == pytest.approx(12.0)
    assert float(d(y)[1] / d(x)[1] / d(z)[0]) == 0.0
    whole = (d(y) / d(x) / d(z)).value
    H = d(y) / d(x) / d(z)
    assert H.shape == (3, 3, 3)
    agree(H[1].value, whole[1])
    agree(H[:, 1, [0, 1]].value, whole[:, 1, [0, 1]])
    agree((d(y)[[0, 2]] / d(x)[1:] / d(z)[:2]).value, whole[[0, 2]][:, 1:, :2])
    agree(H.T.value, whole.permute(1, 2, 0))


def test_the_second_derivative_of_something_linear_is_exactly_zero() -> None:
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    y = 2 * x
    H = d(y) / d(x) / d(x)
    assert not H.value.any()
    assert H.connected


def test_intermediates_and_views_on_the_way() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    h = x**2
    y = (h**3).sum()
    agree((d(y) / d(h) / d(h)).value, torch.diag(6 * h.detach()))
    agree((d(y) / d(x[:1]) / d(x[1:])).value, torch.zeros(1, 1, dtype=torch.float64))
    agree((d(y) / d(x[:1]) / d(x[:1])).value, torch.tensor([[30.0]], dtype=torch.float64))


def test_only_first_derivatives_are_operators(cubic: tuple[torch.Tensor, ...]) -> None:
    y, x, _ = cubic
    with pytest.raises(WrongShape, match="only a first derivative, or a second one of a single y, is a linear map"):
        (d(torch.stack([y, y])) / d(x) / d(x)) @ torch.ones(3)
    with pytest.raises(NotATensor, match=r"write d\(y\) / d\(x\) / d\(z\)"):
        (d(y) / d(x)) / x
    with pytest.raises(WrongShape, match="differentiate first, then index or transpose"):
        (d(y) / d(x)).T / d(x)
