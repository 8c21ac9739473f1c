"""Fifty faults put in on purpose: wrong batching, wrong patterns, dropped branches, scaled rows, stale plans.

Each must be found by a certificate, told in explain(), and answered right all the same.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.plan.problems import PROBLEMS, Problem, at_random, burgers, periodic, row_loop
from wrt import d
from wrt._backends.torch import compat
from wrt._backends.torch.live import LiveRecord
from wrt._backends.torch.sweep import TorchLinear
from wrt._core.pattern import NOBODY, listed
from wrt._planner import warm
from wrt._run import factored, planned

Tensor = torch.Tensor


pytestmark = pytest.mark.usefixtures("planned_from_the_start")


def dense(m: int = 80, n: int = 90) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    W = torch.randn(m, n, dtype=torch.float64, generator=generator)
    x = torch.randn(n, dtype=torch.float64, generator=generator).requires_grad_()
    return torch.sin(W @ torch.tanh(x)) + 0.1, x


def answered_right(y: Tensor, x: Tensor) -> str:
    """The answer equals a row loop of plain autograd; what explain() says of the way there."""
    truth = row_loop(y, x)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-11, atol=1e-11)
    return "\n".join(J.explain().fallbacks)


def scaled(k: int) -> Callable[[Tensor], Tensor]:
    def change(batch: Tensor) -> Tensor:
        batch = batch.clone()
        row = (7 * k + 3) % batch.shape[0]
        batch[row] = batch[row] * (1 + 10.0 ** -(k % 7))
        return batch

    return change


def one_entry(k: int) -> Callable[[Tensor], Tensor]:
    def change(batch: Tensor) -> Tensor:
        flat = batch.clone().flatten(1)
        spot = (11 * k + 5) % flat.shape[0], (13 * k + 1) % flat.shape[1]
        flat[spot] += 10.0 ** -(k % 7) * float(batch.abs().max())
        return flat.reshape(batch.shape)

    return change


def swapped(k: int) -> Callable[[Tensor], Tensor]:
    def change(batch: Tensor) -> Tensor:
        order = torch.arange(batch.shape[0])
        a, b = k % batch.shape[0], (k + 1 + k // 3) % batch.shape[0]
        order[[a, b]] = order[[b, a]]
        return batch[order]

    return change


def lost(k: int) -> Callable[[Tensor], Tensor]:
    def change(batch: Tensor) -> Tensor:
        batch = batch.clone()
        batch[(5 * k) % batch.shape[0]] = 0
        return batch

    return change


BATCHING = [make(k) for k in range(5) for make in (scaled, one_entry, swapped, lost)]


@pytest.mark.parametrize("fault", range(len(BATCHING)))
def test_a_wrong_batching_rule_is_found(monkeypatch, fault):
    def spoiled(right):
        return lambda *given, **more: [BATCHING[fault](g) for g in right(*given, **more)]

    for owner, name in ((TorchLinear, "_pull_by_rules"), (compat, "batched_pull"), (compat, "batched")):
        monkeypatch.setattr(owner, name, spoiled(getattr(owner, name)))
    assert "certificate disagreed" in answered_right(*dense())


@pytest.mark.parametrize("k", range(6))
def test_a_branch_dropped_by_a_push_is_found(monkeypatch, k):
    right, at_once = TorchLinear.push, TorchLinear.push_at_once
    drop = [scaled(k), one_entry(k), lost(k)][k % 3]

    def wrong(self: TorchLinear, tangents: Tensor, probe: Tensor) -> tuple[Tensor, Tensor]:
        pushed, expected = at_once(self, tangents, probe)
        return drop(pushed), expected

    monkeypatch.setattr(TorchLinear, "push", lambda self, t, rung: drop(right(self, t, rung)))
    monkeypatch.setattr(TorchLinear, "push_at_once", wrong)
    assert "certificate disagreed" in answered_right(*dense(300, 20))


def spoil(change: Callable[[np.ndarray], None]) -> None:
    """Change the owners of the only compressed plan that is remembered."""
    ((key, plan),) = ((k, p) for k, p in warm.kept_plans().items() if hasattr(p, "compression"))
    right = plan.compression
    owner = right.owner
    change(owner)
    warm.remember(key, replace(plan, compression=listed(owner, right.color, right.shape, right.way), kept={}))


@pytest.mark.parametrize("name", ["burgers", "periodic", "elementwise", "batch of networks", "flattened", "max-pool"])
def test_a_pattern_that_lost_an_entry_is_found(name):
    y, x = at_random(PROBLEMS[name])
    answered_right(y, x)
    truth = row_loop(y, x).numpy()

    def lose(owner):
        owned = np.argwhere(owner != NOBODY)
        slot = next(s for s in owned[len(owned) // 2 :] if truth[owner[tuple(s)], s[1]] != 0)
        owner[tuple(slot)] = NOBODY

    spoil(lose)
    assert "plan of last time was wrong" in answered_right(y, x)


@pytest.mark.parametrize("name", ["burgers", "periodic", "batch of networks", "flattened", "permuted", "dilated"])
def test_an_entry_that_went_to_the_wrong_row_is_found(name):
    y, x = at_random(PROBLEMS[name])
    answered_right(y, x)

    def move(owner):
        slot = np.argwhere(owner != NOBODY)[owner.size // 3]
        owner[tuple(slot)] = (owner[tuple(slot)] + 1) % owner.max()

    spoil(move)
    assert "plan of last time was wrong" in answered_right(y, x)


def through_a_waist() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    down, up = (torch.randn(s, dtype=torch.float64, generator=generator) for s in ((6, 400), (400, 6)))
    x = torch.randn(400, dtype=torch.float64, generator=generator).requires_grad_()
    y = torch.sin(up @ torch.tanh(down @ x / 20))
    return y, x


@pytest.mark.parametrize("side", ["last", "first"])
@pytest.mark.parametrize("asked", ["cold", "warm"])
@pytest.mark.parametrize("k", range(3))
def test_a_wrong_side_of_a_cut_is_found(monkeypatch, k, asked, side):
    """Columns above the waist and rows below it are held to what an unbatched pull says of the probe."""
    y, x = through_a_waist()
    if asked == "warm":
        answered_right(y, x)
    right = factored.both_sides
    wrong = [scaled(k), one_entry(k), lost(k)][k % 3]

    def sides(*given):
        found = right(*given)
        return found._replace(**{side: wrong(getattr(found, side))})

    monkeypatch.setattr(factored, "both_sides", sides)
    assert "cut" in answered_right(y, x)


@pytest.mark.parametrize("k", range(6))
def test_a_wrong_factor_of_a_cut_is_found(monkeypatch, k):
    """The same where a side does not go in one call."""
    y, x = through_a_waist()
    right = planned.solve
    wrong = [scaled(k), one_entry(k), lost(k)][k % 3]
    monkeypatch.setattr(factored, "both_sides", lambda ask, waist: None)
    monkeypatch.setattr(planned, "solve", lambda ask, report: wrong(right(ask, report)))
    assert "cut" in answered_right(y, x)


STALE = [
    (lambda x: x**2, burgers),
    (burgers, periodic),
    (lambda x: x**2, lambda x: x.flip(0) ** 2),
    (periodic, lambda x: x * x.roll(5)),
    (lambda x: x.roll(5).sin(), lambda x: x.roll(-5).sin()),
    (lambda x: x.roll(7).sin(), burgers),
]


@pytest.mark.parametrize("pair", range(len(STALE)))
def test_a_stale_plan_is_found(monkeypatch, pair):
    """The same signature for another program: what a coarse signature could do."""
    monkeypatch.setattr(LiveRecord, "signature", lambda self, y: ("everything looks the same",))
    first, second = (Problem(f, (200,), 0) for f in STALE[pair])
    answered_right(*at_random(first))
    assert "plan of last time was wrong" in answered_right(*at_random(second))
