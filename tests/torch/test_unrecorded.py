"""torch.func, TorchScript and threads inside a recording: they run as ever, and what was not seen is never called independent."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import wrt
from tests._snapshot import unchanged
from wrt import d, errors

DOUBLE = torch.float64


def product(x: torch.Tensor) -> torch.Tensor:
    return x * x.sin()


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecated, and still in use
    SCRIPTED = torch.jit.script(product)
    TRACED = torch.jit.trace(nn.Linear(3, 2).double().requires_grad_(False), torch.ones(3, dtype=DOUBLE))


POOL = ThreadPoolExecutor(1)
POOL.submit(int).result()  # its thread is there before any recording


def in_a_thread(x: torch.Tensor) -> torch.Tensor:
    made: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: made.append(x.sin()))
    thread.start()
    thread.join()
    return made[0]


CODE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "vmap": torch.func.vmap(lambda a: a.sin() * 2),
    "vmap of a closure": lambda x: torch.func.vmap(lambda a: a * x)(torch.ones(2, dtype=DOUBLE)),
    "grad": torch.func.grad(lambda a: (a**3).sum()),
    "jvp": lambda x: torch.func.jvp(lambda a: a**3, (x,), (torch.ones(3, dtype=DOUBLE),))[1],
    "hessian": torch.func.hessian(lambda a: (a**3).sum()),
    "a scripted function": SCRIPTED,
    "a traced module": TRACED,
    "a thread": in_a_thread,
    "a pool": lambda x: POOL.submit(torch.sin, x).result(),
}


@pytest.mark.parametrize("name", CODE)
def test_what_was_not_seen_is_refused_not_zero(name: str) -> None:
    x = torch.linspace(0.5, 1.5, 3, dtype=DOUBLE)
    with unchanged(x), wrt.record():
        before = 2 * x
        y = CODE[name](x)
        z = 2 * y
    assert not y.requires_grad
    for later in (y, z):
        with pytest.raises(errors.NoPath) as refused:
            _ = (d(later) / d(x)).value
        assert str(refused.value).splitlines()[1:] == [
            "  the run went through torch.func, TorchScript or a thread: what it made of x, without requires_grad, is not known",
            "  write x.requires_grad_() before the run: autograd follows it there too",
        ]
    assert not any(finding.certain for finding in wrt.why(z, x))
    assert torch.equal((d(before) / d(x)).value, 2 * torch.eye(3, dtype=DOUBLE))
    assert (d(z) / d(y)).value.sum() == 2 * y.numel()


@pytest.mark.parametrize("name", CODE)
def test_what_requires_grad_is_followed_there(name: str) -> None:
    x = torch.linspace(0.5, 1.5, 3, dtype=DOUBLE, requires_grad=True)
    with wrt.record():
        y = CODE[name](x)
    rows = [torch.autograd.grad(one, x, retain_graph=True)[0] for one in y.reshape(-1)]
    assert torch.allclose((d(y) / d(x)).value.reshape(-1, 3), torch.stack(rows))


def test_a_run_without_them_proves_independence() -> None:
    x, w = torch.ones(2), torch.ones(2)
    with wrt.record():
        y, z = x * 2, w * 3
    J = d(y) / d(w)
    assert not J.connected
    assert not J.value.any()


def test_an_x_that_the_recording_never_met_is_not_told_to_be_recorded():
    words = """\
no gradient path from {0} to h
  the recording of h never met {0}: no line inside uses it, only perhaps what was made from it before
  put every line from {0} to h inside `with wrt.record():`"""
    leaf = torch.ones(2, requires_grad=True)
    plain = torch.ones(2)
    made = plain.tolist()
    with wrt.record():
        h = torch.zeros(3)
        h[1] = made[0]
    for x, name in ((leaf, "leaf"), (plain, "plain")):
        with pytest.raises(errors.NoPath) as raised:
            (d(h) / d(x)).value
        assert str(raised.value) == words.format(name)


class Tripled(torch.autograd.Function):
    """|x| by its forward, 3 by its backward: tells which of them was asked."""

    @staticmethod
    def forward(ctx, x):
        return x.abs()

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient


tripled = Tripled.apply  # as torch's own tutorial does: taken before any recording


def test_a_function_that_was_given_a_name_before_the_recording_is_seen() -> None:
    x = torch.tensor([1.0, -2.0], dtype=DOUBLE)
    for apply in (tripled, lambda x: tripled(x) * 1, lambda x: Tripled.apply(x)):
        t = wrt.trace(apply, x)
        assert torch.equal((d(t.output) / d(t.inputs[0])).value, 3 * torch.eye(2, dtype=DOUBLE))
    with wrt.record():
        y = tripled(x)
    assert torch.equal((d(y) / d(x)).value, 3 * torch.eye(2, dtype=DOUBLE))
    assert "apply" not in vars(torch.autograd.Function.__mro__[1])  # nothing stands in the way any more
    assert not tripled(x).requires_grad
