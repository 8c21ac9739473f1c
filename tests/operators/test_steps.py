"""Newton and Gauss-Newton steps: next to numpy's solution of the dense system."""

import numpy as np
import pytest
import torch

from tests.operators._problems import SHAPES, full_rank, matrix, network, stencil
from wrt import d
from wrt.errors import WrongShape


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_the_step_is_the_least_squares_solution(name: str, damping: float) -> None:
    y, x = SHAPES[name]()
    J = matrix(y, x)
    b = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    found = (d(y) / d(x)).solve(b, damping=damping)
    flat = b.numpy().reshape(-1)
    damped = np.vstack([J, damping * np.eye(J.shape[1])])
    truth = np.linalg.lstsq(damped, np.concatenate([flat, np.zeros(J.shape[1])]), rcond=1e-10)[0]
    assert found
    assert found.value.shape == x.shape
    np.testing.assert_allclose(found.value.numpy().reshape(-1), truth, rtol=1e-5, atol=1e-6 * np.abs(truth).max())
    roundoff = 1e-10 * np.linalg.norm(J, 2) * np.linalg.norm(truth)
    np.testing.assert_allclose(found.residual, np.linalg.norm(J @ truth - flat), rtol=1e-6, atol=roundoff)


def test_matrix_free_where_the_sides_are_long() -> None:
    y, x = full_rank(300)
    J = d(y) / d(x)
    b = torch.ones(300, dtype=torch.float64)
    found = J.solve(b)
    np.testing.assert_allclose(found.value.numpy(), np.linalg.solve(matrix(y, x), b.numpy()), rtol=1e-7)
    assert found.iterations > 0
    assert found.passes == J.explain().passes < 300


def test_a_stencil_is_solved_from_its_few_passes() -> None:
    y, x = stencil(2000)
    J = d(y) / d(x)
    found = J.solve(torch.ones_like(y))
    assert found
    assert found.passes < 40  # the samples, three colors, proofs; the iterations take none


def test_newtons_method_converges_quadratically() -> None:
    target = torch.linspace(-1, 1, 150, dtype=torch.float64)
    x = torch.zeros(150, dtype=torch.float64)
    away = []
    for _ in range(7):
        x = x.detach().requires_grad_()
        y = x + 0.3 * torch.sin(x + torch.roll(x, 40) * x.mean()) - target
        away.append(float(y.detach().norm()))
        x = x - (d(y) / d(x)).solve(y).value
    assert away[-1] < 1e-12
    assert away[3] < 10 * away[2] ** 2 + 1e-12


def test_the_transposed_system() -> None:
    y, x = network(7, 50)
    b = torch.ones(50, dtype=torch.float64)
    found = (d(y) / d(x)).T.solve(b)
    truth = np.linalg.lstsq(matrix(y, x).T, b.numpy())[0]
    np.testing.assert_allclose(found.value.numpy(), truth, rtol=1e-8)


def test_a_right_side_of_another_shape_is_refused() -> None:
    y, x = network(7, 50)
    with pytest.raises(WrongShape, match=r"b has shape \(50,\)"):
        (d(y) / d(x)).solve(torch.ones(50))


def test_too_few_iterations_are_admitted() -> None:
    y, x = full_rank(300)
    found = (d(y) / d(x)).solve(torch.ones(300, dtype=torch.float64), most=2)
    assert not found
    assert "NOT converged" in repr(found)
