"""A derivative is a linear operator: products, batches of them, transposes, conversions."""

import numpy as np
import pytest
import torch
from scipy import sparse

from tests._snapshot import unchanged
from tests.torch._rows import agree
from wrt import d
from wrt.errors import NoPath


@pytest.fixture
def linear() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """y = A x with y of shape (2, 3) and x of shape (2, 2): the Jacobian is A."""
    A = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x = torch.randn(2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    return (A @ x.reshape(4)).reshape(2, 3), x, A


def test_products_and_batches_of_them(linear: tuple[torch.Tensor, ...]) -> None:
    y, x, A = linear
    u, v = torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 2, dtype=torch.float64)
    us, vs = torch.randn(5, 2, 3, dtype=torch.float64), torch.randn(2, 2, 5, dtype=torch.float64)
    J = d(y) / d(x)
    with unchanged(y, x):
        agree(J @ v, (A @ v.reshape(4)).reshape(2, 3))
        agree(u @ J, (u.reshape(6) @ A).reshape(2, 2))
        agree(J @ vs, (A @ vs.reshape(4, 5)).reshape(2, 3, 5))
        agree(us @ J, (us.reshape(5, 6) @ A).reshape(5, 2, 2))
        agree(J.T @ u, (A.T @ u.reshape(6)).reshape(2, 2))
        agree(v @ J.T, (v.reshape(4) @ A.T).reshape(2, 3))
        agree(J.T.T @ v, J @ v)
        agree(J[1] @ v, (A @ v.reshape(4)).reshape(2, 3)[1])
        agree(J[0, :, 1] @ v[1], (A.reshape(2, 3, 2, 2)[0, :, 1] @ v[1]))
        agree(u[:, 0] @ J[:, 0], torch.einsum("i,ijk->jk", u[:, 0], A.reshape(2, 3, 2, 2)[:, 0]))


def test_vectors_of_other_kinds(linear: tuple[torch.Tensor, ...]) -> None:
    y, x, A = linear
    J = d(y) / d(x)
    expected = (A @ torch.arange(4.0, dtype=torch.float64)).reshape(2, 3)
    agree(J @ np.arange(4.0).reshape(2, 2), expected)
    agree(J @ [[0, 1], [2, 3]], expected)
    agree(J @ torch.arange(4).reshape(2, 2), expected)
    agree(np.ones((2, 3)) @ J, A.sum(0).reshape(2, 2))


def test_products_with_a_view_taken_afterwards_and_with_the_identity(linear: tuple[torch.Tensor, ...]) -> None:
    y, x, A = linear
    agree((d(y) / d(x[0])) @ torch.ones(2), A.reshape(2, 3, 4)[:, :, :2].sum(2))
    agree(torch.ones(2, 3) @ (d(y) / d(x[0])), A.sum(0)[:2])
    z = torch.arange(3.0)
    assert ((d(z) / d(z)) @ torch.tensor([1.0, 2.0, 3.0])).tolist() == [1.0, 2.0, 3.0]
    assert (torch.tensor([1.0, 2.0, 3.0]) @ (d(z) / d(z))).tolist() == [1.0, 2.0, 3.0]


def test_products_refuse_where_no_path_leads() -> None:
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    for ask in (lambda: (d(a * 2) / d(b)) @ torch.ones(2), lambda: torch.ones(2) @ (d(a * 2) / d(b))):
        with pytest.raises(NoPath):
            ask()


def test_conversions(linear: tuple[torch.Tensor, ...]) -> None:
    y, x, A = linear
    J = d(y) / d(x)
    whole = A.reshape(2, 3, 2, 2).numpy()
    np.testing.assert_allclose(np.asarray(J), whole)
    np.testing.assert_allclose(J.numpy(), whole)
    np.testing.assert_allclose(np.asarray(J, dtype=np.float32), whole.astype(np.float32))
    assert float(J[0, 0, 0, 0]) == pytest.approx(float(A[0, 0]))
    assert complex(J[0, 0, 0, 0]) == pytest.approx(float(A[0, 0]))
    assert J[0, 0, 0, 0].item() == float(J[0, 0, 0, 0])
    assert len(J) == 2
    assert (J.ndim, J.size, J.dtype) == (4, 24, torch.float64)
    np.testing.assert_allclose(J.T.numpy(), np.moveaxis(whole, (0, 1), (2, 3)))


def test_diagonal_and_sparse() -> None:
    x = torch.arange(1.0, 301.0, dtype=torch.float64).requires_grad_()
    y = x**2 + torch.roll(x, 1)
    J = d(y) / d(x)
    with unchanged(x, y):
        agree(J.diagonal(), 2 * x.detach())
        matrix = J.sparse()
    assert isinstance(matrix, sparse.csr_array)
    assert matrix.nnz == 600
    assert (J.T.sparse() != matrix.T).nnz == 0
    np.testing.assert_allclose(matrix.diagonal(), 2 * x.detach().numpy())
