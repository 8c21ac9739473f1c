"""What a sweep holds at its peak, worked out by hand; the true peaks next to the estimates are `benchmarks memory`."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from wrt import d
from wrt._planner.foresee import told_passes
from wrt._run.budget import answer_bytes
from wrt._run.peak import live, peak_bytes

N = 96
Function = Callable[[torch.Tensor], torch.Tensor]


def ask_of(f: Function, *shape: int):
    x = torch.randn(*(shape or (N,)), dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    return (d(f(x)) / d(x)).ask


def flow_of(f: Function, *shape: int):
    ask = ask_of(f, *shape)
    return ask.y.record.flow(ask.y, ask.x.values)


@pytest.mark.parametrize(
    ("f", "pulled", "pushed"),
    [
        (torch.sin, 3 * N, 3 * N),  # a pull: two seeds, and what is made of them; a push: its seed, what comes, what is made
        (lambda x: x.sin().cos().exp(), 4 * N, 3 * N),
        (lambda x: x.sin() * x.cos(), 5 * N, 4 * N),  # a pull adds two, a push waits for both
        (lambda x: x * x.sum(), 4 * N, 3 * N + 1),  # what was broadcast is made in full before it is a number
        (lambda x: x.sum().exp(), N + 2, 2 * N + 1),  # a sum spreads out a view
        (lambda x: x.sin() + x.cos(), 5 * N, 4 * N),
    ],
)
def test_what_is_alive_is_counted_along_the_graph(f: Function, pulled: int, pushed: int) -> None:
    flow = flow_of(f)
    assert (live(flow, "pull"), live(flow, "push")) == (pulled, pushed)


def test_a_product_is_reordered_for_its_kernels() -> None:
    weights = torch.randn(N, N, dtype=torch.float64)
    assert live(flow_of(lambda x: x @ weights, 1, N), "pull") == 4 * N  # two seeds, what is made, and that once more


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x**2 - x.roll(1) * x.roll(-1),
        lambda x: (x.reshape(8, 12) @ torch.ones(12, 5, dtype=torch.float64)).tanh(),
        lambda x: x * x.sum(),
        lambda x: x[5:] * x[:-5],
    ],
)
def test_the_passes_that_operations_tell_are_the_entries_of_a_row(f: Function) -> None:
    x = torch.linspace(0.5, 1, N, dtype=torch.float64)
    rows = torch.autograd.functional.jacobian(f, x).reshape(-1, N)
    few = rows[np.linspace(0, len(rows) - 1, 3).astype(int)]
    expected = None if len(rows) < 65 else int((few != 0).sum(1).max())
    assert told_passes(ask_of(f)) == expected


def test_operations_that_tell_nothing_are_asked_nothing() -> None:
    assert told_passes(ask_of(lambda x: torch.linalg.solve(torch.eye(N, dtype=torch.float64) + x.outer(x), x))) is None


def test_a_structure_takes_hardly_more_than_its_answer() -> None:
    ask = ask_of(lambda x: x**2 - x.roll(1) * x.roll(-1), 4096)
    assert answer_bytes(ask) < peak_bytes(ask) < 1.1 * answer_bytes(ask)


def test_a_waist_takes_its_factors() -> None:
    down, up = torch.randn(4, 2048, dtype=torch.float64), torch.randn(2048, 4, dtype=torch.float64)
    ask = ask_of(lambda x: (up @ (down @ x).tanh()).sin(), 2048)
    assert peak_bytes(ask) == answer_bytes(ask) + 2 * (2048 + 2048) * 4 * 8
