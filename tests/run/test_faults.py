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
from wrt._backends.torch.engine import ONE_BY_ONE, TorchEngine
from wrt._backends.torch.live import LiveRecord
from wrt._core.pattern import NOBODY, listed
from wrt._core.plan import Lines
from wrt._plan import cache
from wrt._run import run

Tensor = torch.Tensor


pytestmark = pytest.mark.usefixtures("planned_from_the_start")


def dense(m: int = 80, n: int = 90) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    W = torch.randn(m, n, dtype=torch.float64, generator=generator)
    x = torch.randn(n, dtype=torch.float64, generator=generator).requires_grad_()
    return torch.sin(W @ torch.tanh(x)) + 0.1, x


def answered_right(y: Tensor, x: Tensor) -> str:
    """The answer equals a row loop of plain autograd, with a certificate; what explain() says of the way there."""
    truth = row_loop(y, x)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-11, atol=1e-11)
    assert J.certificate
    settled = [str(J.certificate)] if "swept alone" in str(J.certificate) else []
    return "\n".join((*J.explain().fallbacks, *settled))


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
    right = TorchEngine.pull

    def wrong(self, seeds, *, batched=True):
        swept = right(self, seeds, batched=batched)
        if swept.method != ONE_BY_ONE:
            swept.arrays = [BATCHING[fault](found) for found in swept.arrays]
        return swept

    monkeypatch.setattr(TorchEngine, "pull", wrong)
    assert answered_right(*dense())


@pytest.mark.parametrize("k", range(6))
def test_a_branch_dropped_by_a_push_is_found(monkeypatch, k):
    right = TorchEngine.push
    drop = [scaled(k), one_entry(k), lost(k)][k % 3]

    def wrong(self, tangents, *, batched=True):
        swept = right(self, tangents, batched=batched)
        swept.arrays = [drop(found) for found in swept.arrays]
        return swept

    monkeypatch.setattr(TorchEngine, "push", wrong)
    assert "direct, push, batched: " in answered_right(*dense(300, 20))


def spoil(change: Callable[[np.ndarray], None]) -> None:
    """Change the owners of the only plan with shared passes that is remembered."""
    kept = cache._PLANS.items()
    ((key, plan),) = ((k, p) for k, p in kept if isinstance(p, Lines) and p.shared is not None)
    right = plan.shared
    owner = right.owner
    change(owner)
    cache.remember(key, replace(plan, shared=listed(owner, right.color, right.shape, right.way)))


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
    assert answered_right(y, x)


@pytest.mark.parametrize("name", ["burgers", "periodic", "batch of networks", "flattened", "permuted", "dilated"])
def test_an_entry_that_went_to_the_wrong_row_is_found(name):
    y, x = at_random(PROBLEMS[name])
    answered_right(y, x)

    def move(owner):
        slot = np.argwhere(owner != NOBODY)[owner.size // 3]
        owner[tuple(slot)] = (owner[tuple(slot)] + 1) % owner.max()

    spoil(move)
    assert answered_right(y, x)


def through_a_cut() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    down, up = (torch.randn(s, dtype=torch.float64, generator=generator) for s in ((6, 400), (400, 6)))
    x = torch.randn(400, dtype=torch.float64, generator=generator).requires_grad_()
    y = torch.sin(up @ torch.tanh(down @ x / 20))
    return y, x


@pytest.mark.parametrize("side", [0, 1, "the product"])
@pytest.mark.parametrize("asked", ["cold", "warm"])
@pytest.mark.parametrize("k", range(3))
def test_a_wrong_factor_of_a_cut_is_found(monkeypatch, k, asked, side):
    """A side of it, or the product that they are multiplied to after all passes."""
    y, x = through_a_cut()
    if asked == "warm":
        answered_right(y, x)
    right = run.multiply
    wrong = [scaled(k), one_entry(k), lost(k)][k % 3]

    def multiply(arrays, factors):
        if len(factors) != 2:  # of another plan
            return right(arrays, factors)
        if side == "the product":
            found = right(arrays, factors)
            return replace(found, array=wrong(found.array))
        spoiled = list(factors)
        spoiled[side] = replace(spoiled[side], array=wrong(spoiled[side].array))
        return right(arrays, spoiled)

    monkeypatch.setattr(run, "multiply", multiply)
    told = answered_right(y, x)
    assert "cut" in told or "swept alone" in told


LAYOUTS = {
    "columns exchanged": lambda found: found[:, [1, 0, *range(2, found.shape[1])]],
    "rows exchanged": lambda found: found[[1, 0, *range(2, len(found))]],
    "transposed": lambda found: found.T.contiguous(),
    "a window shifted by one": lambda found: found.roll(1, 1),
    "a block dropped": lambda found: found.clone().index_fill_(0, torch.arange(50, 60), 0.0),
    "a column of zeros": lambda found: found.clone().index_fill_(1, torch.tensor([77]), 0.0),
    "a column scaled by 1 + 1e-9": lambda found: found * (1 + 1e-9 * (torch.arange(len(found)) == 9).double()),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_that_is_spoiled_after_the_passes_is_found(monkeypatch, name):
    right = run.Shared.dense
    monkeypatch.setattr(run.Shared, "dense", lambda self: LAYOUTS[name](right(self)))
    assert answered_right(*at_random(PROBLEMS["burgers"]))


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
    monkeypatch.setattr(LiveRecord, "signature", lambda self, y, xs: ("everything looks the same",))
    first, second = (Problem(f, (200,), 0) for f in STALE[pair])
    answered_right(*at_random(first))
    assert answered_right(*at_random(second))
