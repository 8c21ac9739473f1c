"""On a GPU the host tells the device what to do and does not wait for it: how often it does is counted here."""

import pytest
import torch
from torch import nn

from tests.torch._rows import row_loop
from wrt import d
from wrt._backends.torch.engine import TorchEngine
from wrt._plan import cache, plans

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def burgers(u: torch.Tensor) -> torch.Tensor:
    inner = 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) - u[1:-1] * (u[2:] - u[:-2])
    return torch.cat([u[:1], inner, u[-1:]])


def samples(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ torch.linspace(-1, 1, 64, dtype=x.dtype, device="cuda").reshape(8, 8)) * x


def narrow() -> nn.Module:
    torch.manual_seed(0)
    down = [nn.Linear(4096, 1024), nn.Tanh(), nn.Linear(1024, 32), nn.Tanh()]
    return nn.Sequential(*down, nn.Linear(32, 1024), nn.Tanh(), nn.Linear(1024, 4096)).cuda().double()


def smooth(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * x.sum())


def waits(run) -> int:
    """How often the host waits for the device while it runs."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        run()
    return sum(event.name in ("cudaStreamSynchronize", "cudaEventSynchronize") for event in profile.events())


CASES = {
    # for what the independent pass gave, and for the sums it is held to; cold, sampled rows are looked at before that
    "direct": (lambda: smooth, (100,), "direct", 2, 2),
    "stencil": (lambda: burgers, (800,), "structured", 3, 2),
    "samples": (lambda: samples, (40, 8), "structured", 3, 2),
    "narrow": (narrow, (4096,), "cut", 2, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_host_waits_for_verdicts_alone(name, monkeypatch):
    make, shape, strategy, cold, again = CASES[name]
    if strategy != "direct":
        monkeypatch.setattr(plans, "QUICK_SECONDS_DEVICE", 0.0)
    f = make()
    x = torch.randn(shape, dtype=torch.float64, device="cuda", generator=torch.Generator("cuda").manual_seed(0)).requires_grad_()
    y = f(x)
    (d(y) / d(x)).value  # what is loaded and kept for all questions
    cache.forget()
    first, second = d(y) / d(x), d(y) / d(x)
    assert (waits(lambda: first.value), waits(lambda: second.value)) == (cold, again)
    assert first.explain().strategy == second.explain().strategy == strategy
    expected = torch.func.jacrev(f)(x)  # 4096 rows one by one would take a minute
    for J in (first, second):
        torch.testing.assert_close(J.value.reshape(expected.shape), expected)
        assert J.certificate


def test_a_device_without_room_is_asked_in_smaller_calls(monkeypatch):
    """A batch that the device refuses is no answer, and no error either."""
    x = torch.randn(120, dtype=torch.float64, device="cuda", requires_grad=True)
    y = smooth(x)
    real, calls = TorchEngine.pull, []

    def refused_once(self, seeds, *, batched=True):
        calls.append(len(seeds))
        if len(calls) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, seeds, batched=batched)

    monkeypatch.setattr(TorchEngine, "pull", refused_once)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x))
    assert J.certificate
    assert calls == [120, 30, 30, 30, 30]
