"""The passes that `explain()` tells are those that the engine ran, counted by an operation on the way."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import wrt
from tests.torch._rows import agree, row_loop
from wrt import d

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


def test_a_push_is_one_pull_to_set_up_one_push_and_one_pull_to_certify(swept: Counter[str]) -> None:
    y, x = question()
    swept.clear()
    (d(y) / d(x)) @ torch.ones(5)
    assert swept == {"pull": 2, "push": 1}
    swept.clear()
    with wrt.options(certify=False):
        (d(y) / d(x)) @ torch.ones(5)
    assert swept == {"pull": 1, "push": 1}


def test_a_tree_shares_one_pass(swept: Counter[str]) -> None:
    y, x = question()
    h = x * 1
    loss = Sine.apply(torch.stack([h, h * 2]).sum(0)).sum() + y.sum()
    unused = torch.ones(2, requires_grad=True)
    swept.clear()
    tree = d(loss) / d({"x": x, "h": [h], "unused": unused})
    tree["x"].value, tree["h"][0].value
    assert swept.total() == 2  # one pass, which meets two sines
    assert tree["x"].explain().passes == tree["h"][0].explain().passes == 1
    assert not tree["unused"].connected
    assert swept.total() == 2


def test_a_tree_of_several_rows_shares_its_passes_and_its_certificate(swept: Counter[str]) -> None:
    y, x = question()
    h = x * 1
    both = y + h.sum()
    swept.clear()
    tree = d(both) / d([x, h])
    agreed = [leaf.value for leaf in tree]
    assert swept == {"pull": 7 + 1}
    assert tree[0].explain().passes == 8
    agree(agreed[0], row_loop(both, x))
    agree(agreed[1], row_loop(both, h))


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
