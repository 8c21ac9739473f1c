"""Nonzeros, diagonals: what they cost next to the whole, and that they are right."""

import numpy as np
import pytest
import torch

from tests.plan.problems import PROBLEMS, at_random, row_loop
from wrt import d


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_nonzeros_are_those_of_the_row_loop(name):
    y, x = at_random(PROBLEMS[name])
    truth = row_loop(y, x).numpy()
    for _ in range(2):  # cold, then warm
        J = d(y) / d(x)
        found = J.sparse()
        np.testing.assert_allclose(found.toarray(), truth, rtol=1e-12, atol=1e-12)
        assert found.nnz == np.count_nonzero(found.toarray())
        assert J.explain().strategy == "structured"


def test_nonzeros_of_a_jacobian_that_would_never_fit():
    x = torch.linspace(0, 1, 300_000, dtype=torch.float64, requires_grad=True)
    y = torch.sin(x) * x
    J = d(y) / d(x)
    found = J.sparse()
    expected = (torch.cos(x) * x + torch.sin(x)).detach().numpy()
    assert found.shape == (300_000, 300_000)
    np.testing.assert_allclose(found.diagonal(), expected, rtol=1e-12)
    assert found.nnz <= 300_000
    assert J.explain().passes < 20


def test_a_diagonal_takes_the_passes_of_the_structure():
    y, x = at_random(PROBLEMS["burgers"])
    J = d(y) / d(x)
    found = J.diagonal()
    torch.testing.assert_close(found, row_loop(y, x).diagonal(), rtol=1e-12, atol=1e-12)
    assert J.explain().passes < 20


def test_the_diagonal_of_a_dense_map_is_right_too():
    torch.manual_seed(0)
    W = torch.randn(100, 100, dtype=torch.float64)
    x = torch.randn(100, dtype=torch.float64, requires_grad=True)
    y = torch.tanh(W @ x)
    torch.testing.assert_close((d(y) / d(x)).diagonal(), row_loop(y, x).diagonal(), rtol=1e-12, atol=1e-12)


def test_the_diagonal_through_a_cut_never_forms_the_product():
    torch.manual_seed(0)
    down, up = torch.randn(5, 300, dtype=torch.float64), torch.randn(300, 5, dtype=torch.float64)
    x = torch.randn(300, dtype=torch.float64, requires_grad=True)
    y = torch.sin(up @ torch.tanh(down @ x))
    J = d(y) / d(x)
    torch.testing.assert_close(J.diagonal(), row_loop(y, x).diagonal(), rtol=1e-12, atol=1e-12)
    assert J.explain().strategy == "cut"
    assert J.explain().passes <= 11


def test_the_identity_has_its_nonzeros():
    x = torch.randn(100, dtype=torch.float64, requires_grad=True)
    np.testing.assert_array_equal((d(x) / d(x)).sparse().toarray(), np.eye(100))
