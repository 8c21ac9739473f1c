"""Every way that numbers take in torch: followed, or refused; never zeros that nobody proved."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

import wrt
from tests.channels.judge import differences, judge
from tests.channels.torch_rows import CHANNELS
from wrt import d, errors

CASES = [(happens, program) for happens, programs in CHANNELS.values() for program in programs]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(("happens", "program"), CASES, ids=[program.__name__ for _, program in CASES])
def test_a_channel_is_followed_or_refused(happens: str, program: Any, requires_grad: bool) -> None:
    def tensor(array: Any) -> torch.Tensor:
        return torch.tensor(array, dtype=torch.float64, requires_grad=requires_grad)

    start = np.array([0.3, 0.7, 1.2])
    x = tensor(start)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # typed storages are deprecated, and still in use
        truth = differences(lambda array: program(tensor(array), nullcontext).detach().numpy().copy(), start, 1e-4)
        judge(happens, lambda: (d(program(x, wrt.record)) / d(x)).value.numpy(), truth)


def test_a_live_tensor_that_was_written_may_depend_on_what_was_made_of_it() -> None:
    a = torch.ones(3, requires_grad=True)
    y = a * 2
    x = y * 3
    assert not (d(y) / d(x)).value.any()
    with torch.no_grad():
        y.copy_(x)
    with pytest.raises(errors.NoPath):
        _ = (d(y) / d(x)).value


def test_a_traced_function_is_run_once_more_before_zeros_are_returned() -> None:
    secret: dict[str, Any] = {}

    def f(x: torch.Tensor) -> torch.Tensor:
        secret["x"] = x
        return torch.ones(2) * sum(hidden())

    def hidden() -> Any:
        with torch._C.DisableTorchFunction():  # as foreign code does, which no recording sees
            return secret["x"].tolist()

    t = wrt.trace(f, torch.ones(2))
    with pytest.raises(errors.NoPath, match="run at a moved x"):
        _ = (d(t.output) / d(t.inputs[0])).value
    with wrt.options(run_again=False):
        assert not (d(t.output) / d(t.inputs[0])).value.any()


def test_the_second_run_leaves_everything_as_it_was() -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
    runs = []

    def f(x: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        runs.append(1)
        return model(x), c * 2

    t = wrt.trace(f, torch.rand(4, 3), torch.ones(2))
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}, torch.get_rng_state()
    J = d(t.output[1]) / d(t.inputs[0])
    assert not J.value.any()
    assert len(runs) in (1, 3)
    assert torch.equal(torch.get_rng_state(), before[1])
    assert J.explain().notes


def test_connected_speaks_of_the_elements_asked_for() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    assert (d(y) / d(x)).connected is True
    assert (d(y)[0] / d(x)[0]).connected is True
    assert not (d(y)[0] / d(x)[1]).connected  # None: a path leads there, and one pass does not tell
    assert (d(x)[0] / d(x)[1]).connected is False
    assert (d(y)[0] / d(x)[1]).has_path
