"""Singular values with bounds: next to numpy's of the dense matrix, and never worse than they say."""

import numpy as np
import pytest
import torch

from tests.operators._problems import SHAPES, decaying, matrix, network
from wrt import d
from wrt._operators.spectrum import spectrum
from wrt.errors import EngineRefused


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("k", [1, 3])
def test_the_largest_singular_values_are_numpys(name: str, k: int) -> None:
    y, x = SHAPES[name]()
    found = (d(y) / d(x)).singular_values(k)
    truth = np.linalg.svd(matrix(y, x))[1][:k]
    assert found
    assert len(found) == len(truth)
    np.testing.assert_allclose(np.asarray(found), truth, rtol=1e-6, atol=1e-12)


def test_without_forming_the_matrix_the_bounds_hold_and_the_passes_are_few() -> None:
    y, x = decaying(400, 300)
    J = d(y) / d(x)
    found = J.singular_values(4)
    truth = 0.9 ** np.arange(4)
    assert found
    assert np.all(np.abs(found.values - truth) <= found.errors + 1e-12)
    assert found.errors.max() <= 1e-6
    assert found.passes == J.explain().passes < 150
    dense = matrix(y, x)
    np.testing.assert_allclose(dense @ found.right, found.left * found.values, atol=2e-6)
    turned = (d(y) / d(x)).T.singular_values(2)
    np.testing.assert_allclose(dense.T @ turned.right, turned.left * turned.values, atol=2e-6)


def test_a_loose_tolerance_takes_fewer_passes_and_its_bounds_hold() -> None:
    y, x = decaying(400, 300)
    rough = (d(y) / d(x)).singular_values(4, tolerance=0.05)
    fine = (d(y) / d(x)).singular_values(4)
    assert rough.passes < fine.passes
    assert np.all(np.abs(rough.values - 0.9 ** np.arange(4)) <= rough.errors)


def test_single_precision_reaches_what_single_precision_can() -> None:
    y, x = decaying(300, 200)
    x32 = x.detach().float().requires_grad_()
    weights = torch.as_tensor(matrix(y, x)).float()
    found = (d(weights @ (x32 + x32**3)) / d(x32)).singular_values(2)
    assert found
    np.testing.assert_allclose(found.values, [1.0, 0.9], rtol=2e-5)


def test_what_has_not_converged_says_so() -> None:
    generator = np.random.default_rng(0)
    flat = generator.standard_normal((300, 300))
    from scipy.sparse.linalg import aslinearoperator

    found = spectrum(aslinearoperator(flat), 3, 1e-12, most=20)
    assert not found
    assert "NOT converged" in repr(found)
    truth = np.linalg.svd(flat)[1]
    assert all(np.abs(truth - value).min() <= error for value, error in zip(found.values, found.errors, strict=True))


def test_a_long_search_is_gathered_and_still_converges() -> None:
    from scipy.sparse.linalg import aslinearoperator

    values = np.linspace(1.0, 0.2, 500)
    values[:2] = 1.02, 1.01
    found = spectrum(aslinearoperator(np.diag(values)), 2, 1e-8, most=4000)
    assert found
    np.testing.assert_allclose(found.values, [1.02, 1.01], rtol=1e-10)


def test_a_zero_map_has_only_zeros() -> None:
    x = torch.ones(5, dtype=torch.float64, requires_grad=True)
    found = (d(x * 0) / d(x)).singular_values(2)
    assert found.values.tolist() == [0.0, 0.0]


def test_the_repr_is_the_interface() -> None:
    y, x = network(7, 50)
    words = repr((d(y) / d(x)).singular_values(1))
    assert words.startswith("Spectrum  ")
    assert words.endswith(" passes")


def test_an_infinite_jacobian_has_no_singular_values_and_no_solution() -> None:
    x = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    J = d(torch.sqrt(x)) / d(x)
    with pytest.raises(EngineRefused) as caught:
        J.singular_values()
    assert str(caught.value) == (
        "singular values of a Jacobian that is not finite\n"
        "  an entry, or a product with it, is infinite or NaN\n"
        "  ask J.why() in a recorded run for the operation, or take the rows that are finite"
    )
    with pytest.raises(EngineRefused, match="a solution of a Jacobian that is not finite"):
        J.solve(torch.ones(2))
