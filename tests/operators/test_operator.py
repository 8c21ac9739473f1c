"""J as scipy's LinearOperator, held to the dense matrix of a row loop."""

from collections import Counter

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import LinearOperator, cg, eigsh, gmres, lsmr, svds

import wrt
from tests.operators._problems import SHAPES, full_rank, matrix, network
from tests.run.test_sweep import SWEPT, Sine
from wrt import d


@pytest.fixture
def swept() -> Counter[str]:
    SWEPT.clear()
    return SWEPT


def counted(n: int = 5, m: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    weights = torch.randn(m, n, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x = torch.linspace(-1, 1, n, dtype=torch.float64).requires_grad_()
    return weights @ Sine.apply(x), x


@pytest.mark.parametrize("name", SHAPES)
def test_products_equal_those_of_the_dense_matrix(name: str) -> None:
    y, x = SHAPES[name]()
    A, J = (d(y) / d(x)).operator(), matrix(y, x)
    random = np.random.default_rng(0)
    assert isinstance(A, LinearOperator)
    assert A.shape == J.shape
    assert A.dtype == np.float64
    for transposed, dense in ((A, J), (A.T, J.T), (A.H, J.T), ((d(y) / d(x)).T.operator(), J.T)):
        v, block = random.standard_normal(dense.shape[1]), random.standard_normal((dense.shape[1], 4))
        np.testing.assert_allclose(transposed @ v, dense @ v, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(transposed @ block, dense @ block, rtol=1e-11, atol=1e-12)


def test_scipy_computes_with_it() -> None:
    y, x = full_rank(40)
    A, J = (d(y) / d(x)).operator(), matrix(y, x)
    b = np.random.default_rng(1).standard_normal(40)
    np.testing.assert_allclose(gmres(A, b, rtol=1e-12)[0], np.linalg.solve(J, b), rtol=1e-8)
    np.testing.assert_allclose(lsmr(A, b, atol=1e-12, btol=1e-12)[0], np.linalg.solve(J, b), rtol=1e-6)
    np.testing.assert_allclose(svds(A, k=3, rng=0)[1][::-1], np.linalg.svd(J)[1][:3], rtol=1e-9)
    np.testing.assert_allclose(cg(A.T @ A, J.T @ b, rtol=1e-12)[0], np.linalg.solve(J, b), rtol=1e-6)


def test_a_block_is_one_batch_and_its_passes_are_counted(swept: Counter[str]) -> None:
    y, x = counted()
    A = (d(y) / d(x)).operator()
    A @ np.ones((5, 4))
    assert dict(swept) == {"pull": 1, "push": 4}  # one pull for all proofs, from which the pushes start
    assert A.passes == 5
    A @ np.ones((5, 3))
    assert dict(swept) == {"pull": 1, "push": 7}  # nothing is set up again, and every push is proven for nothing
    A.T @ np.ones((7, 5))
    assert dict(swept) == {"pull": 1 + 5, "push": 7}
    assert A.passes == swept.total()
    assert A.certificate


def test_a_thousand_products_are_told_in_a_few_lines() -> None:
    y, x = network(6, 5)
    J = d(y) / d(x)
    A = J.operator()
    for _ in range(300):
        A @ np.ones(5)
    told = J.explain()
    assert len(told.steps) < 10
    assert told.passes == A.passes == 301


class Halved(torch.autograd.Function):
    """The identity, whose backward is right and whose backward's backward is not: pushes come out halved."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, u: torch.Tensor) -> torch.Tensor:
        return Half.apply(u)


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, u: torch.Tensor) -> torch.Tensor:
        return u.clone()

    @staticmethod
    def backward(ctx: object, t: torch.Tensor) -> torch.Tensor:
        return t / 2


def test_a_wrong_push_is_noticed_and_answered_by_pulls() -> None:
    x = torch.linspace(0, 1, 6, dtype=torch.float64).requires_grad_()
    y = torch.sin(Halved.apply(x))
    J = d(y) / d(x)
    A = J.operator()
    np.testing.assert_allclose(A @ np.ones(6), np.cos(x.detach().numpy()), rtol=1e-12)
    assert any("DISAGREES" in words for words in J.explain().fallbacks)


def test_single_precision_stays_single() -> None:
    y, x = network(6, 5)
    x32 = x.detach().float().requires_grad_()
    A = (d(torch.sin(x32)) / d(x32)).operator()
    assert A.dtype == np.float32
    assert (A @ np.ones(5)).dtype == np.float32


def test_complex_products_conjugate_where_scipy_expects_it() -> None:
    weights = torch.randn(4, 3, dtype=torch.complex128, generator=torch.Generator().manual_seed(1))
    x = torch.randn(3, dtype=torch.complex128, generator=torch.Generator().manual_seed(2)).requires_grad_()
    A = (d(weights @ x**2) / d(x)).operator()
    J = (weights * 2 * x).detach().numpy()
    u = np.array([1 + 1j, 2, -1j, 0.5])
    np.testing.assert_allclose(A @ np.array([1j, 1, 2]), J @ np.array([1j, 1, 2]))
    np.testing.assert_allclose(A.H @ u, J.conj().T @ u)
    np.testing.assert_allclose(A.T @ u, J.T @ u)


def test_the_identity_is_never_formed() -> None:
    x = torch.zeros(1_000_000).requires_grad_()
    A = (d(x) / d(x)).operator()
    v = np.arange(1_000_000, dtype=np.float32)
    assert np.array_equal(A @ v, v)
    A = (d(x)[:3] / d(x)[1:]).operator()
    assert (A @ v[1:]).tolist() == [0.0, 1.0, 2.0]
    assert A.passes == 0


def test_proven_independence_multiplies_to_zero() -> None:
    with wrt.record():
        x = torch.ones(3, requires_grad=True)
        y = torch.ones(2, requires_grad=True) * 2
    A = (d(y) / d(x)).operator()
    assert not (A @ np.ones(3)).any()
    assert not (A.T @ np.ones(2)).any()


def test_the_second_derivative_of_a_loss_is_an_operator() -> None:
    x = torch.randn(12, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    loss = (torch.sin(x) * torch.roll(x, 1)).sum() + (x**4).sum()
    H = (d(loss) / d(x) / d(x)).numpy()
    A = (d(loss) / d(x) / d(x)).operator()
    np.testing.assert_allclose(A @ np.eye(12), H, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(eigsh(A, k=2)[0], np.linalg.eigvalsh(H)[-2:], rtol=1e-9)
    v = torch.ones(12, dtype=torch.float64)
    np.testing.assert_allclose(((d(loss) / d(x) / d(x)) @ v).numpy(), H.sum(1), rtol=1e-12)


def test_nothing_of_the_users_changes(unchanged: object) -> None:
    y, x = network(6, 5)
    with unchanged(x, y):  # type: ignore[operator]
        J = d(y) / d(x)
        A = J.operator()
        A @ np.ones(5)
        J.singular_values(1)
        J.gram().value
        J.solve(torch.ones(6, dtype=torch.float64))
