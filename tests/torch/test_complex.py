"""Complex numbers: the derivative of complex analysis where it exists, two real questions where it does not."""

import pytest
import torch

import wrt
from tests._snapshot import unchanged
from wrt import d
from wrt.errors import NotHolomorphic

HOLOMORPHIC = {
    "square": (lambda z: z**2, lambda z: 2 * z),
    "exp": (torch.exp, torch.exp),
    "reciprocal": (lambda z: 1 / z, lambda z: -1 / z**2),
    "times i": (lambda z: 1j * z, lambda z: 1j * torch.ones_like(z)),
    "sin": (torch.sin, torch.cos),
}


def z_() -> torch.Tensor:
    return torch.tensor([1 + 2j, -0.5 + 0.25j, 3j], dtype=torch.complex128, requires_grad=True)


@pytest.mark.parametrize("way", ["pull", "push"])
@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_a_holomorphic_function_has_its_textbook_derivative(name: str, way: str) -> None:
    f, slope = HOLOMORPHIC[name]
    z = z_()
    y = f(z)
    with unchanged(z, y), wrt.options(way=way):
        torch.testing.assert_close((d(y) / d(z)).value, torch.diag(slope(z.detach())), rtol=1e-12, atol=1e-14)
    with unchanged(z, y):
        assert complex(d(y)[0] / d(z)[0]) == pytest.approx(complex(slope(z.detach())[0]), rel=1e-12)
        v = torch.tensor([1j, 2, 1 - 1j], dtype=torch.complex128)
        torch.testing.assert_close((d(y) / d(z)) @ v, slope(z.detach()) * v, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(v @ (d(y) / d(z)), slope(z.detach()) * v, rtol=1e-12, atol=1e-14)


def test_a_matrix_of_complex_numbers_is_its_own_jacobian() -> None:
    a = torch.randn(3, 3, dtype=torch.complex128, generator=torch.Generator().manual_seed(2))
    z = z_()
    y = a @ z
    torch.testing.assert_close((d(y) / d(z)).value, a, rtol=1e-12, atol=1e-14)


def test_complex_y_over_real_x_has_the_slopes_of_its_two_parts() -> None:
    t = torch.tensor([0.3, 1.2], dtype=torch.float64, requires_grad=True)
    y = torch.exp(1j * t)
    torch.testing.assert_close((d(y) / d(t)).value, torch.diag(1j * torch.exp(1j * t.detach())), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("f", [torch.conj, lambda z: z * z.abs(), lambda z: z.real + 0j], ids=["conj", "abs", "real"])
def test_what_is_not_holomorphic_is_refused_with_the_real_questions(f: object) -> None:
    z = z_()
    y = f(z)  # type: ignore[operator]
    with unchanged(z, y):
        with pytest.raises(NotHolomorphic, match=r"d\(y.real\) / d\(x.real\)"):
            (d(y) / d(z)).value


def test_real_over_complex_is_refused_and_its_two_questions_are_answered() -> None:
    z = z_()
    y = z.abs() ** 2
    with unchanged(z, y):
        with pytest.raises(NotHolomorphic) as refused:
            (d(y) / d(z)).value
        assert str(refused.value) == (
            "y is real and x is complex: a complex derivative does not exist\n"
            "  y moves in two real directions of x, along its real and its imaginary part\n"
            "  ask d(y) / d(x.real) and d(y) / d(x.imag)"
        )
        torch.testing.assert_close((d(y) / d(z.real)).value, torch.diag(2 * z.detach().real))
        torch.testing.assert_close((d(y) / d(z.imag)).value, torch.diag(2 * z.detach().imag))
        assert float(d(y)[1] / d(z.imag)[1]) == 0.5
