"""The passes that `explain()` tells are those that the engine ran, counted by an operation on the way."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import wrt
from tests.torch._rows import agree, row_loop
from wrt import d
from wrt._run import thresholds

SWEPT: Counter[str] = Counter()


class Sine(torch.autograd.Function):
    """sin, whose backward (and that one's backward) notes how many rows (or columns) went through it."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, u: torch.Tensor) -> torch.Tensor:
        return Scaled.apply(u, torch.cos(ctx.saved_tensors[0]), "pull")


class Scaled(torch.autograd.Function):
    """u * slope, counted as one pass, or as the whole batch under vmap."""

    @staticmethod
    def forward(u: torch.Tensor, slope: torch.Tensor, way: str) -> torch.Tensor:
        SWEPT[way] += 1
        return u * slope

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        u, slope, _ = inputs
        ctx.save_for_backward(u, slope)

    @staticmethod
    def backward(ctx: Any, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        u, slope = ctx.saved_tensors
        return Scaled.apply(t, slope, "push"), t * u, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, u: torch.Tensor, slope: torch.Tensor, way: str) -> tuple[torch.Tensor, int]:
        SWEPT[way] += info.batch_size
        first = u.movedim(in_dims[0], 0) if in_dims[0] is not None else u
        return first * slope, 0


@pytest.fixture
def swept() -> Counter[str]:
    SWEPT.clear()
    return SWEPT


def question(n: int = 5, m: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    matrix = torch.randn(m, n, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x = torch.linspace(-1, 1, n, dtype=torch.float64).requires_grad_()
    return matrix @ Sine.apply(x), x


def forced(way: str, narrow: Callable[[Any], Any] = lambda J: J) -> Callable[[Any], Any]:
    def ask(J: Any) -> Any:
        with wrt.options(way=way):
            J = narrow(J)
            J.value
        return J

    return ask


def computed(narrow: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def ask(J: Any) -> Any:
        J = narrow(J)
        J.value
        return J

    return ask


def product(multiply: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def ask(J: Any) -> Any:
        multiply(J)
        return J

    return ask


WAYS: dict[str, Callable[[Any], Any]] = {
    "element": computed(lambda J: J[2, 3]),
    "row": computed(lambda J: J[2]),
    "column": computed(lambda J: J[:, 3]),
    "block": computed(lambda J: J[1:4, 2:]),
    "scattered entries": computed(lambda J: J[[0, 2, 2], [1, 3, 3]]),
    "whole": computed(lambda J: J),
    "transposed": computed(lambda J: J.T),
    "whole by pull": forced("pull"),
    "whole by push": forced("push"),
    "column by push": forced("push", lambda J: J[:, 3]),
    "J @ v": product(lambda J: J @ torch.ones(5)),
    "J @ vs": product(lambda J: J @ torch.ones(5, 3)),
    "u @ J": product(lambda J: torch.ones(7) @ J),
    "us @ J": product(lambda J: torch.ones(4, 7) @ J),
    "many us @ J": product(lambda J: torch.ones(16, 7) @ J),
    "diagonal": product(lambda J: J[:5].diagonal()),
    "sparse": product(lambda J: J.sparse()),
}


@pytest.mark.parametrize("name", [name for name in WAYS if name != "diagonal"])
def test_explain_tells_the_passes_that_ran(name: str, swept: Counter[str]) -> None:
    y, x = question()
    swept.clear()
    told = WAYS[name](d(y) / d(x)).explain()
    counted = {way: sum(step.passes for step in told.steps if step.way == way) for way in ("pull", "push")}
    assert counted == {way: swept[way] for way in ("pull", "push")}
    assert told.passes == swept.total()
    assert told.ran


def test_the_diagonal_tells_its_passes(swept: Counter[str]) -> None:
    y, x = question(5, 5)
    J = d(y) / d(x)
    swept.clear()
    agree(J.diagonal(), row_loop_diagonal(y, x, swept))
    assert J.explain().passes == swept.total()


def row_loop_diagonal(y: torch.Tensor, x: torch.Tensor, swept: Counter[str]) -> torch.Tensor:
    before = swept.copy()
    expected = row_loop(y, x).diagonal()
    swept.clear()
    swept.update(before)
    return expected


MINIMAL = {"element": 1, "row": 1, "u @ J": 1, "us @ J": 4}


@pytest.mark.parametrize("name", MINIMAL)
def test_what_is_one_pass_by_hand_is_one_pass_here(name: str, swept: Counter[str]) -> None:
    y, x = question()
    swept.clear()
    WAYS[name](d(y) / d(x))
    assert swept.total() == MINIMAL[name]


@pytest.mark.parametrize("certify", [True, False])
def test_a_push_is_set_up_by_the_pull_that_proves_it(certify: bool, swept: Counter[str]) -> None:
    y, x = question()
    swept.clear()
    with wrt.options(certify=certify):
        (d(y) / d(x)) @ torch.ones(5)
    assert swept == {"pull": 1, "push": 1}


def test_columns_take_one_pull_more_and_rows_too(swept: Counter[str]) -> None:
    y, x = question(5, 17)
    swept.clear()
    (d(y) / d(x)).value
    assert swept == {"pull": 1, "push": 5}
    swept.clear()
    (d(y)[:4] / d(x)).value
    assert swept == {"pull": 4 + 1}


def test_without_a_proof_rows_take_no_pass_more(swept: Counter[str]) -> None:
    y, x = question()
    swept.clear()
    with wrt.options(certify=False):
        J = d(y) / d(x)
        J.value
    assert swept == {"pull": 7}
    assert not J.certificate
    assert str(J.certificate) == "switched off"


@pytest.mark.parametrize("way", ["pull", "push"])
def test_many_lines_go_in_several_calls_and_land_where_they_belong(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "FEW_NUMBERS", 0)
    monkeypatch.setattr(thresholds, "WHOLE_CALL_BYTES_CPU", 0)
    monkeypatch.setattr(thresholds, "CALL_LINES_CPU", (1, 3))
    y, x = question(8, 11)
    with wrt.options(way=way):
        J = d(y)[1:] / d(x)[1:]
        agree(J.value, row_loop(y, x)[1:, 1:])
    steps = [step for step in J.explain().steps if step.what in ("rows", "columns")]
    passes, calls = sum(step.passes for step in steps), sum(step.calls for step in steps)
    assert (passes, calls) == ((10, 4) if way == "pull" else (7, 3))


def test_second_order_tells_its_passes(swept: Counter[str]) -> None:
    y, x = question()
    loss = (y**2).sum()
    swept.clear()
    H = d(loss) / d(x) / d(x)
    H.value
    told = H.explain()
    assert told.steps[0].passes == 1
    assert told.passes == 1 + x.numel() + 1  # the gradient, its rows, and one to prove them
    assert swept["pull"] == told.passes
    assert swept["push"] == told.passes - 1  # the gradient's own pull is swept back once for each later pass


@pytest.mark.parametrize("way", ["pull", "push", None])
@pytest.mark.parametrize("part", ["real", "imag"])
def test_the_real_numbers_of_a_complex_tensor_have_real_derivatives(part: str, way: Any) -> None:
    z = torch.tensor([1 + 2j, 3 - 1j, 2j], dtype=torch.complex128, requires_grad=True)
    y = z.abs()
    expected = torch.diag((getattr(z, part) / z.abs()).detach())
    with wrt.options(way=way):
        agree((d(y) / d(getattr(z, part))).value, expected)
        agree((d(y)[1] / d(getattr(z, part))).value, expected[1])
        agree((d(y) / d(getattr(z, part))) @ torch.ones(3, dtype=torch.float64), expected.sum(1))
        agree(torch.ones(3, dtype=torch.float64) @ (d(y) / d(getattr(z, part))), expected.sum(0))


SECOND: dict[str, tuple[Callable[[Any], Any], int]] = {
    "row": (lambda H: H[0], 2),
    "element": (lambda H: H[0, 1], 2),
    "column": (lambda H: H[:, 1], 3),
    "block": (lambda H: H[1:3, ::2], 1 + 2 + 1),
    "transposed row": (lambda H: H.T[0], 2),
}


@pytest.mark.parametrize("name", SECOND)
def test_part_of_a_second_derivative_pays_for_that_part(name: str, swept: Counter[str]) -> None:
    y, x = question()
    part, passes = SECOND[name]
    H = d((y**2).sum()) / d(x) / d(x)
    whole = H.value
    swept.clear()
    asked = part(H)
    agree(asked.value, part(whole))
    assert asked.explain().passes == passes
    assert swept["pull"] == 1 + sum(step.passes for step in asked.explain().steps[1:] if step.way == "pull")
