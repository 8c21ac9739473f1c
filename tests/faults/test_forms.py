"""Every form in which a torch Jacobian is handed out: sparse, a diagonal, products, leaves of a tree, Gram, second order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.faults import plant as places
from tests.faults.faults import OF_A_BATCH, OF_A_MATRIX, SIZES, Fault, Numbers
from tests.faults.judge import counted, outcome, require_noticed, require_right
from tests.faults.plant import Plant, first_plan_spoiled, first_plan_watched
from tests.faults.questions import Question
from tests.faults.torch_answers import question, row_loop
from wrt import d
from wrt._backends.torch.engine import TorchEngine
from wrt._run import compact

Told = Callable[[str, object], None]
SHOWN: dict[str, Fault] = {
    name: OF_A_MATRIX[name]
    for name in (
        "two columns exchanged", "two rows exchanged", "a block dropped", "the largest column scaled", "the smallest column zero",
        "one entry in the next row", "computed in lower precision",
    )
}  # fmt: skip
SQUARE = ["structured pull", "banded", "colored", "colored, columns apart", "cut", "cut of two tensors", "sum", "chain"]
FORMS: dict[str, tuple[list[str], Callable[[Any], Any], Callable[[Numbers], Numbers]]] = {
    "sparse": ([*SQUARE, "direct pull", "structured push"], lambda J: J.sparse().toarray(), lambda J: J),
    "diagonal": (SQUARE, lambda J: J.diagonal().double().numpy().reshape(1, -1), lambda J: np.diag(J)[None]),
    "Gram": (["direct pull", "direct push", "colored", "cut"], lambda J: J.gram().value.double().numpy(), lambda J: J.T @ J),
    "Gram over y": (["direct pull", "colored", "cut"], lambda J: J.T.gram().value.double().numpy(), lambda J: J @ J.T),
}


@pytest.fixture(autouse=True)
def planned(planned_from_the_start: None) -> None:
    pass


@pytest.mark.parametrize("form", FORMS)
def test_a_fault_on_the_way_to_another_form(form: str, record_property: Told) -> None:
    names, take, expected = FORMS[form]
    found = []
    for name in names:
        asked = question(name, "float64")
        truth = expected(asked.truth)
        for fault in SHOWN.values():
            plant = Plant(fault, SIZES["float64"])
            with asked.as_planned(), first_plan_watched(plant, whole=True):
                J = asked.derivative()
                if form.startswith("Gram"):
                    G = J.gram() if form == "Gram" else J.T.gram()
                    got, report = G.value.double().numpy(), G.report
                else:
                    got, report = take(J), J.explain().report
            found.append(_of_form(report, plant, np.asarray(got), truth, asked))
    record_property("told", f"{form} of {', '.join(names)}: float64 {counted(found)}")


def _of_form(report: Any, plant: Plant, got: Numbers, truth: Numbers, asked: Question) -> Any:
    """The numbers of the form, the words about all of J."""
    np.testing.assert_allclose(got.reshape(truth.shape), truth, atol=1e-13 * np.linalg.norm(truth))
    assert plant.handed_out is not None
    return outcome(report, plant, asked.truth, asked.truth, asked.dtype)


@pytest.mark.parametrize("name", ["structured pull", "banded", "colored", "colored, columns apart", "structured push"])
def test_a_spoiled_table_of_nonzeros(name: str) -> None:
    asked = question(name, "float64")
    for change in (places.lose_an_entry, places.move_an_entry, places.shift_the_window):
        plant = Plant(lambda J, size: J, 0.0)
        with first_plan_spoiled(plant, change, asked.truth):
            J = asked.derivative()
            found = J.sparse().toarray()
        outcome(J.explain().report, plant, found, asked.truth, "float64")
    for fault in SHOWN.values():
        plant = Plant(fault, SIZES["float64"])
        with first_plan_watched(plant) as patch:
            places.sparse_layout(patch, plant)
            J = asked.derivative()
            found = J.sparse().toarray()
        outcome(J.explain().report, plant, found, asked.truth, "float64")


@pytest.mark.parametrize("form", ["sparse", "diagonal"])
def test_blocks_of_rows_are_proven_one_by_one(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Jacobian that is too large to be formed at once."""
    monkeypatch.setattr(compact, "is_small", lambda ask: False)
    monkeypatch.setattr(compact, "lines_per_call", lambda ask, count: 16)
    W = torch.randn(48, 48, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.randn(48, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y = torch.sin(W @ x)
    truth = row_loop(y, x)
    for fault in OF_A_BATCH.values():
        plant = Plant(fault, SIZES["float64"])
        with first_plan_watched(plant, whole=True):
            J = d(y) / d(x)
            found = J.sparse().toarray() if form == "sparse" else J.diagonal().numpy()
        np.testing.assert_allclose(found, truth if form == "sparse" else truth.diagonal(), rtol=1e-11, atol=1e-12)
        require_noticed(J.explain().report)  # type: ignore[arg-type]


# ---------------------------------------------------------------- products and trees: no plan, the engine alone


@pytest.fixture
def spoiled_engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Fault, float], Plant]:
    """The first batch that the engine itself returns is spoiled."""

    def put(way: str, fault: Fault, size: float) -> Plant:
        plant, right = Plant(fault, size), getattr(TorchEngine, way)
        plant.active = True

        def sweep(self: Any, given: Any, *, batched: bool = True) -> Any:
            swept = right(self, given, batched=batched)
            if batched and plant.once():
                plant.fired += 1
                swept.arrays[-1] = _spoiled(plant, swept.arrays[-1])
            return swept

        monkeypatch.setattr(TorchEngine, way, sweep)
        return plant

    return put


def _spoiled(plant: Plant, batch: torch.Tensor) -> torch.Tensor:
    from tests.faults.faults import spoil

    return torch.from_numpy(spoil(plant.fault, batch.double().numpy(), plant.size)).to(batch.dtype)


PRODUCTS: dict[str, tuple[str, Callable[[Any, torch.Tensor], torch.Tensor], Callable[[Numbers, Numbers], Numbers]]] = {
    "u @ J": ("pull", lambda J, u: u @ J, lambda J, u: u @ J),
    "J @ v": ("push", lambda J, v: J @ v, lambda J, v: J @ v),
    "G @ v": ("push", lambda J, v: J.gram() @ v, lambda J, v: J.T @ (J @ v)),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("fault", OF_A_BATCH)
def test_a_fault_in_a_product(product: str, fault: str, dtype: str, spoiled_engine: Any, record_property: Told) -> None:
    way, multiply, expected = PRODUCTS[product]
    asked = question("direct pull", dtype)
    given = torch.randn(12, 40 if way == "pull" else 50, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    given = (given if way == "pull" else given.T).to(getattr(torch, dtype))
    plant = spoiled_engine(way, OF_A_BATCH[fault], SIZES[dtype])
    J = asked.derivative()
    G = J.gram() if product == "G @ v" else None
    got = multiply(J, given) if G is None else G @ given
    truth = expected(asked.truth, given.double().numpy())
    require_right(got.double().numpy(), truth, dtype)
    assert plant.fired
    report = J.explain().report if G is None else G.report
    assert report is not None
    require_noticed(report)
    if dtype == "float64":
        record_property("told", f"{product}, {fault}: noticed ({report.fallbacks[0][:60]})")


@pytest.mark.parametrize("fault", OF_A_BATCH)
def test_a_fault_in_one_leaf_of_a_tree(fault: str, spoiled_engine: Any) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 5)).double()
    y = model(torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    plant = spoiled_engine("pull", OF_A_BATCH[fault], 1e-9)
    tree = d(y) / d(dict(model.named_parameters()))
    for name, parameter in model.named_parameters():
        J = tree[name]
        require_right(J.value.numpy(), row_loop(y, parameter), "float64")
        assert J.certificate
        assert any("DISAGREES" in words for words in J.explain().fallbacks), name
    assert plant.fired


@pytest.mark.parametrize("fault", SHOWN)
def test_a_fault_in_a_second_derivative(fault: str) -> None:
    x = torch.randn(30, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    W = torch.randn(30, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    loss = torch.sin(W @ x).pow(2).sum()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    plant = Plant(SHOWN[fault], 1e-9)
    with first_plan_watched(plant, whole=True):
        H = d(loss) / d(x) / d(x)
        found = H.value
    truth = row_loop(gradient, x)
    outcome(H.explain().report, plant, found.numpy(), truth, "float64")
