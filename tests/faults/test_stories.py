"""Programs that were answered wrong with a true certificate once, in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.faults.judge import require_noticed, require_right
from tests.faults.torch_answers import row_loop
from tests.faults.torch_programs import burgers, like
from wrt import d
from wrt._backends.torch.live import LiveRecord

Tensor = torch.Tensor
Told = Callable[[str, object], None]


def at_random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    made = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype).requires_grad_()


class Cube(torch.autograd.Function):
    """x³ whose backward is right, and lost to whoever differentiates it again."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        with torch.no_grad():
            return 3 * x * x * g.detach()


def require_answered(y: Tensor, x: Tensor, truth: Any = None) -> Any:
    J = d(y) / d(x)
    value = J.value
    require_right(value.double().numpy(), row_loop(y, x) if truth is None else truth, str(x.dtype)[6:])
    report = J.explain().report
    assert report is not None
    assert report.certificate, str(report.certificate)
    return J


def test_a_custom_backward_under_no_grad_that_columns_lose_float32_20000_x_8(record_property: Told) -> None:
    """Seven of eight columns were exact zeros: the push loses whatever goes through the custom operation."""
    x = at_random(8, dtype=torch.float32)
    W = like(x, 20_000, 8)
    y = (W[:, :1] * x[:1]).sum(1) + W[:, 1:] @ Cube.apply(x[1:])
    truth = W.double().numpy() * np.concatenate([[1.0], 3 * x.detach().double().numpy()[1:] ** 2])
    J = require_answered(y, x, truth)
    record_property("told", f"20,000 x 8 with a backward under no_grad: {require_noticed(J.explain().report)}")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_branch_of_ten_percent_lost_by_a_double_backward(dtype: torch.dtype, record_property: Told) -> None:
    x = at_random(20, dtype=dtype)
    h = like(x, 400, 20) @ x
    y = h.tanh() + 0.1 * Cube.apply(h)
    J = require_answered(y, x)
    assert J.explain().steps[0].what == "independent check"  # columns were tried first
    record_property("told", f"h.tanh() + 0.1 * Op(h), {dtype}: {require_noticed(J.explain().report)}")


def test_a_push_that_is_wrong_in_two_columns_where_they_are_small() -> None:
    """Batched or alone, the push says the same; the rows with the largest entries are right."""
    x = at_random(20)
    W, V = like(x, 300, 20).clone(), like(x, 300, 2, seed=5).clone()
    W[50:, :2] *= 1e-3
    V[:50] = 0
    V[50:] *= 1e-3
    y = W @ x.tanh() + V @ Cube.apply(x[:2])
    require_noticed(require_answered(y, x).explain().report)


class Sine(torch.autograd.Function):
    """sin(x) whose backward is right, and off by a ten-thousandth for whoever differentiates it again."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return Slope.apply(g, x.cos())


class Slope(torch.autograd.Function):
    @staticmethod
    def forward(g: Tensor, slope: Tensor) -> Tensor:
        return g * slope

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return g * ctx.saved_tensors[0] * 1.0001, None


def test_a_push_that_is_wrong_by_a_little_in_every_row() -> None:
    """4,000 rows: next to its column, each of them is off by less than what is allowed of the column."""
    x = at_random(8, dtype=torch.float32)
    W = like(x, 4_000, 8)
    y = W[:, :2] @ Sine.apply(x[:2]) + W[:, 2:] @ x[2:].sin()
    truth = W.double().numpy() * x.detach().double().cos().numpy()
    require_noticed(require_answered(y, x, truth).explain().report)


def wrong_rule(factor: float) -> Any:
    """A class that is always called the same; its vmap rule may be wrong."""

    class Scale(torch.autograd.Function):
        generate_vmap_rule = False

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
            return Turn.apply(g)

    class Turn(torch.autograd.Function):
        @staticmethod
        def forward(g: Tensor) -> Tensor:
            return 2 * g

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
            return 2 * g

        @staticmethod
        def vmap(info: Any, in_dims: Any, g: Tensor) -> tuple[Tensor, int]:
            return factor * 2 * g, in_dims[0]

    return Scale


@pytest.mark.parametrize("size", [30, 90])
def test_a_vmap_rule_that_is_wrong_under_a_name_that_was_right(size: int, record_property: Told) -> None:
    for factor in (1.0, 3.0, 1 + 1e-9, 1.0):
        x = at_random(size)
        y = like(x, size, size) @ wrong_rule(factor).apply(x.sin())
        for _ in range(3):
            J = require_answered(y, x)
        if factor == 1.0:
            assert not J.explain().fallbacks
        else:
            require_noticed(J.explain().report)
    record_property("told", f"a wrong vmap rule of {size} x {size}, off by 3 and by 1e-9, after a right one: noticed")


@pytest.mark.parametrize("weight", [0.03, 0.5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_token_that_reads_another_one(weight: float, dtype: torch.dtype, planned_from_the_start: None) -> None:
    """Samples see a network for each of 128 tokens; token 5 also reads token 3."""
    x = at_random(128, 16, dtype=dtype)

    def block(x: Tensor) -> Tensor:
        h = x + torch.nn.functional.gelu(x @ like(x, 16, 64)) @ like(x, 64, 16)
        stray = torch.zeros(128, 128, dtype=x.dtype)
        stray[5, 3] = weight
        return h + stray @ h.tanh()

    y = block(x)
    rows = range(3 * 16, 7 * 16)  # the rest of the truth is the same network for each token
    J = d(y) / d(x)
    value = J.value.reshape(2048, 2048).double()
    assert J.certificate
    for row in rows:
        seed = torch.zeros(2048, dtype=dtype)
        seed[row] = 1
        (truth,) = torch.autograd.grad(y, x, seed.reshape(128, 16), retain_graph=True)
        torch.testing.assert_close(value[row], truth.flatten().double(), rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-5)


def test_a_token_that_reads_another_one_behind_attention(planned_from_the_start: None, record_property: Told) -> None:
    x = at_random(24, 16)

    def block(x: Tensor, weight: float) -> Tensor:
        mixed = x + torch.softmax(x @ x.T, -1) @ x
        stray = torch.zeros(24, 24, dtype=x.dtype)
        stray[5, 3] = weight
        return mixed + torch.nn.functional.gelu((mixed + stray @ mixed) @ like(x, 16, 128)) @ like(x, 128, 16)

    for weight in (0.0, 0.03, 0.5):
        J = require_answered(block(x, weight), x)
        explained = J.explain()
        words = f"{explained.strategy}, {len(explained.fallbacks)} fallbacks"
        record_property("told", f"attention, then tokens, one reads another with {weight}: {words}")


STALE: list[tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = [
    (lambda x: x**2, burgers),
    (burgers, lambda x: x * x.roll(5)),
    (lambda x: x**2, lambda x: x.flip(0) ** 2),
    (lambda x: x.roll(5).sin(), lambda x: x.roll(-5).sin()),
    (lambda x: x.roll(7).sin(), lambda x: x.roll(8).sin()),
    (burgers, lambda x: burgers(x) + 1e-4 * x.flip(0)),
]


@pytest.mark.usefixtures("planned_from_the_start")
@pytest.mark.parametrize("pair", range(len(STALE)))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_plan_that_is_stale(pair: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs whose structure looks the same: the plan of the first is tried for the second."""
    monkeypatch.setattr(LiveRecord, "signature", lambda *given: ("everything looks the same",))
    before, after = STALE[pair]
    x = at_random(200, dtype=dtype)
    require_answered(before(x), x)
    J = require_answered(after(x), x)
    assert any("the plan of an earlier, identical question did not hold" in words for words in J.explain().fallbacks)


def test_a_hook_is_part_of_the_engines_backward() -> None:
    x = at_random(30)
    h = x.sin()
    h.register_hook(lambda g: 2 * g)
    y = like(x, 40, 30) @ h
    J = require_answered(y, x)
    assert not J.explain().fallbacks


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_backward_that_is_not_linear_is_never_certified(dtype: torch.dtype) -> None:
    """Clipped gradients: rows and sums of rows are different things."""
    x = at_random(30, dtype=dtype)
    h = x.sin()
    h.register_hook(lambda g: g.clamp(-0.1, 0.1))
    y = like(x, 40, 30) @ h
    J = d(y) / d(x)
    require_right(J.value.double().numpy(), row_loop(y, x), str(dtype)[6:])
    assert not J.certificate
    assert "DISAGREES" in str(J.certificate)
