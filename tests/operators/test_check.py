"""J.check(): right derivatives agree with finite differences, wrong ones do not, and kinks are admitted."""

import pytest
import torch

import wrt
from tests.operators._problems import generator
from wrt import d
from wrt.errors import EngineRefused, NotRecorded


class Cube(torch.autograd.Function):
    """x³ whose backward says 2 x²."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, u: torch.Tensor) -> torch.Tensor:
        return 2 * u * ctx.saved_tensors[0] ** 2  # type: ignore[attr-defined]


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.GELU(), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_network_agrees_as_a_whole_and_in_parts(dtype: torch.dtype) -> None:
    x = torch.randn(4, 5, dtype=dtype, generator=generator(1))
    t = wrt.trace(network().to(dtype), x, values=True)
    for J in (d(t.output) / d(t.inputs[0]), d(t.output)[1] / d(t["1"])[1:], d(t["2"])[:, 2] / d(t["0"])):
        found = J.check()
        assert found, found
        assert found.verdict == "agrees"
        assert len(found.engine) == 3


def test_a_wrong_backward_is_found_though_its_certificate_holds() -> None:
    t = wrt.trace(lambda x: Cube.apply(torch.tanh(x)), torch.linspace(0.5, 2, 6, dtype=torch.float64), values=True)
    J = d(t.output) / d(t.inputs[0])
    assert J.value.shape == (6, 6)
    found = J.check()
    assert J.certificate
    assert not found
    assert found.verdict == "disagrees"
    assert "wrt.check(f, x) names the operation" in str(found)
    assert "certificate: checked against an independent backward pass" in str(found)
    for told, seen in zip(found.engine, found.differences, strict=True):
        assert told / seen == pytest.approx(2 / 3, rel=1e-6)


def test_on_a_kink_nobody_can_tell() -> None:
    t = wrt.trace(torch.relu, torch.zeros(4, dtype=torch.float64), values=True)
    assert (d(t.output) / d(t.inputs[0])).check().verdict == "cannot tell"
    t = wrt.trace(torch.relu, torch.tensor([1.0, -1.0, 0.5, 2.0], dtype=torch.float64), values=True)
    assert (d(t.output) / d(t.inputs[0])).check()


def test_a_cut_is_left_cut() -> None:
    t = wrt.trace(lambda x: x**2 * x.detach(), torch.tensor([1.0, 2.0], dtype=torch.float64), values=True)
    assert (d(t.output) / d(t.inputs[0])).check()


def test_a_live_tensor_has_nothing_to_run_again() -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(NotRecorded) as caught:
        (d(x**2) / d(x)).check()
    assert str(caught.value) == (
        "J.check() needs a recorded run\n"
        "  nothing was recorded of this run; finite differences run its operations again\n"
        "  write t = wrt.trace(f, x, values=True), then (d(t.output) / d(t.inputs[0])).check()"
    )


def test_writes_in_place_are_refused_by_name() -> None:
    def fill(x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(2, dtype=torch.float64)
        h[0] = x[0] ** 2
        h[1] = h[0] * x[1]
        return h

    t = wrt.trace(fill, torch.ones(2, dtype=torch.float64), values=True)
    with pytest.raises(EngineRefused, match=r"__setitem__ cannot be run again, at test_check\.py"):
        (d(t.output) / d(t.inputs[0])).check()
