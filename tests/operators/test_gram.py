"""JᵀJ and JJᵀ: the numbers of the dense product, the passes of the shorter side."""

from collections import Counter

import numpy as np
import pytest
import torch

import wrt
from tests.operators._problems import SHAPES, matrix, network, stencil
from tests.operators.test_operator import counted, swept
from wrt import d
from wrt._operators.gram import Gram
from wrt._run import thresholds
from wrt.errors import TooLarge

__all__ = ["swept"]


@pytest.mark.parametrize("held", ["whole", "in chunks"])
@pytest.mark.parametrize("side", ["x", "y"])
@pytest.mark.parametrize("name", SHAPES)
def test_all_forms_equal_the_dense_product(name: str, side: str, held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if held == "in chunks":
        monkeypatch.setattr(thresholds, "CHECKED_BYTES", 0)
    y, x = SHAPES[name]()
    J = matrix(y, x)
    truth = J.T @ J if side == "x" else J @ J.T
    shape = x.shape if side == "x" else y.shape
    close = {"rtol": 1e-10, "atol": 1e-11 * np.abs(truth).max()}

    def gram() -> Gram:
        return (d(y) / d(x)).gram() if side == "x" else (d(y) / d(x)).T.gram()

    G = gram()
    assert G.shape == (*shape, *shape)
    assert G.value.shape == G.shape
    np.testing.assert_allclose(G.numpy().reshape(truth.shape), truth, **close)
    np.testing.assert_allclose(G.diagonal().numpy().reshape(-1), np.diag(truth), **close)
    np.testing.assert_allclose(gram().diagonal().numpy().reshape(-1), np.diag(truth), **close)
    np.testing.assert_allclose(gram().sparse().toarray(), truth, **close)
    assert gram().trace() == pytest.approx(np.trace(truth), rel=1e-10)
    v = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    many = torch.stack([v, 2 * v], -1)
    np.testing.assert_allclose((gram() @ v).numpy().reshape(-1), truth @ v.numpy().reshape(-1), **close)
    np.testing.assert_allclose((gram() @ many).numpy()[..., 1], 2 * (gram() @ v).numpy(), **close)


@pytest.mark.parametrize(
    ("m", "n", "ways"),
    [
        (7, 5, {"pull": 7, "push": 0}),  # two fewer columns do not pay for the set-up of a push
        (30, 5, {"pull": 0, "push": 5}),
        (5, 30, {"pull": 5, "push": 0}),
    ],
)
@pytest.mark.parametrize("form", ["value", "diagonal"])
@pytest.mark.parametrize("side", ["x", "y"])
def test_the_shorter_side_is_swept_and_one_pull_proves_it(
    m: int, n: int, ways: dict[str, int], form: str, side: str, swept: Counter[str]
) -> None:
    y, x = counted(n, m)
    G = (d(y) / d(x)).gram() if side == "x" else (d(y) / d(x)).T.gram()
    swept.clear()
    G.value if form == "value" else G.diagonal()
    assert swept["push"] == ways["push"]
    assert swept["pull"] == ways["pull"] + 1
    assert G.passes == swept.total()
    assert G.certificate


def test_a_product_is_one_push_and_one_pull(swept: Counter[str]) -> None:
    y, x = counted(30, 40)
    G = (d(y) / d(x)).gram()
    G @ torch.ones(30)
    assert dict(swept) == {"pull": 2, "push": 1}  # the pull of the proofs is the one that pushes start from
    G @ torch.ones(30)
    assert dict(swept) == {"pull": 3, "push": 2}


def test_structure_is_used_where_the_planner_finds_it() -> None:
    y, x = stencil(2000)
    G = (d(y) / d(x)).gram()
    dense = G.numpy()
    assert G.passes < 40
    G = (d(y) / d(x)).gram()
    sparse = G.sparse()
    assert sparse.nnz <= 5 * 2000
    assert G.passes <= 6  # warm: three colors, the probe
    assert np.array_equal(sparse.toarray(), dense)
    J = (d(y) / d(x)).sparse()
    np.testing.assert_allclose(dense, (J.T @ J).toarray(), rtol=1e-12)


def narrow(n: int = 300, width: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(4)
    narrow, wide = (torch.randn(*s, dtype=torch.float64, generator=g) / 9 for s in ((width, n), (n, width)))
    x = torch.randn(n, dtype=torch.float64, generator=g).requires_grad_()
    return torch.sin(wide @ torch.tanh(narrow @ x)), x


@pytest.mark.parametrize("side", ["x", "y"])
def test_through_a_cut_neither_the_product_nor_its_diagonal_needs_all_rows(
    side: str, planned_from_the_start: None
) -> None:
    y, x = narrow()
    J = matrix(y, x)
    truth = J.T @ J if side == "x" else J @ J.T
    for form in ("value", "diagonal"):
        G = (d(y) / d(x)).gram() if side == "x" else (d(y) / d(x)).T.gram()
        found = G.numpy() if form == "value" else G.diagonal().numpy()
        np.testing.assert_allclose(found, truth if form == "value" else np.diag(truth), rtol=1e-10, atol=1e-14)
        assert G.passes == 11
        assert G.certificate


BATCHES = {
    "one network for each sample": lambda x: torch.tanh(x @ weights(9, 7)),
    "samples along the last axis": lambda x: torch.tanh(weights(6, 9) @ x.T) ** 2,
    "two axes of samples": lambda x: torch.sin(x.reshape(5, 6, 9)) @ weights(9, 4),
    "each number alone": lambda x: torch.exp(x) + 1,
}


def weights(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("side", ["x", "y"])
@pytest.mark.parametrize("name", BATCHES)
def test_samples_that_do_not_mix_take_the_passes_of_one(name: str, side: str, planned_from_the_start: None) -> None:
    x = torch.randn(30, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
    for _ in range(2):  # cold, then warm
        y = BATCHES[name](x)
        J = matrix(y, x)
        G = (d(y) / d(x)).gram() if side == "x" else (d(y) / d(x)).T.gram()
        truth = J.T @ J if side == "x" else J @ J.T
        np.testing.assert_allclose(G.numpy().reshape(truth.shape), truth, rtol=1e-11, atol=1e-12)
    assert G.passes <= 11


def test_a_leaf_of_a_tree_uses_the_shared_passes(swept: Counter[str]) -> None:
    y, x = counted(5, 4)
    h = x * 1
    tree = d(y) / d({"x": x, "h": x})
    del h
    swept.clear()
    kernel = sum(J.T.gram().numpy() for J in tree.values())
    np.testing.assert_allclose(kernel, 2 * matrix(y, x) @ matrix(y, x).T, rtol=1e-12)


def test_what_does_not_fit_is_refused_and_its_parts_are_not() -> None:
    x = torch.linspace(0, 1, 100_000, dtype=torch.float64).requires_grad_()
    y = torch.stack([x.sum(), (x**2).sum()])
    G = (d(y) / d(x)).gram()
    with wrt.options(memory=2**30), pytest.raises(TooLarge) as caught:
        G.value
    assert str(caught.value) == (
        "the Gram product has 100000 x 100000 entries: 74.5 GiB\n"
        "  1.0 GiB are free for it\n"
        "  ask for products G @ v, for G.diagonal(), or for G.sparse() if most of it is zero"
    )
    np.testing.assert_allclose(G.diagonal().numpy(), 1 + 4 * x.detach().numpy() ** 2)


def test_lines_that_do_not_all_fit_are_sent_there_and_back() -> None:
    y, x = network(12, 900)
    truth = matrix(y, x) @ matrix(y, x).T
    with wrt.options(memory=40_000):
        G = (d(y) / d(x)).T.gram()
        np.testing.assert_allclose(G.numpy(), truth, rtol=1e-10)
    assert "there and back" in " ".join(G.report.notes)


def test_complex_gram_products_are_hermitian() -> None:
    weights = torch.randn(4, 3, dtype=torch.complex128, generator=torch.Generator().manual_seed(1))
    x = torch.randn(3, dtype=torch.complex128, generator=torch.Generator().manual_seed(2)).requires_grad_()
    y = weights @ x**2
    J = (weights * 2 * x).detach().numpy()
    np.testing.assert_allclose((d(y) / d(x)).gram().numpy(), J.conj().T @ J)
    np.testing.assert_allclose((d(y) / d(x)).T.gram().numpy(), J @ J.conj().T)
    np.testing.assert_allclose((d(y) / d(x)).gram().diagonal().numpy(), np.diag(J.conj().T @ J).real)
    v = torch.tensor([1j, 1, 2], dtype=torch.complex128)
    np.testing.assert_allclose(((d(y) / d(x)).gram() @ v).numpy(), J.conj().T @ J @ v.numpy())


def test_an_infinite_slope_stays_in_its_own_entry() -> None:
    x = torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64, requires_grad=True)
    J = d(torch.sqrt(x)) / d(x)  # reverse mode says 0 x inf = NaN beside the diagonal
    assert J.gram().diagonal().tolist() == [float("inf"), 0.25, 0.0625]
