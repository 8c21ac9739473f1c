"""A plan is carried out as it says, cold and warm: lines that travel together, factors, sums; and what comes out is proven."""

import numpy as np
import pytest
import torch

from tests.plan.problems import PROBLEMS, Problem, at_random, burgers, periodic, row_loop
from wrt import d
from wrt._backends.torch.engine import TorchEngine

pytestmark = pytest.mark.usefixtures("planned_from_the_start")


STENCILS = ["burgers", "periodic", "five-point stencil, two species", "three convolutions", "max-pool", "strided"]


@pytest.mark.parametrize("name", STENCILS)
def test_the_nonzeros_are_those_of_the_row_loop_cold_and_warm(name):
    for seed in range(3):
        y, x = at_random(PROBLEMS[name], seed)
        J = d(y) / d(x)
        found, truth = J.sparse(), row_loop(y, x).numpy()
        np.testing.assert_allclose(found.toarray(), truth, rtol=1e-12, atol=1e-12)
        assert found.data.all()
        assert found.has_sorted_indices
        assert found.indices.dtype == found.indptr.dtype == np.int32  # what scipy's solvers take without a copy
        assert found.nnz == np.count_nonzero(truth)
        sampled = [step for step in J.explain().steps if step.what == "sampled rows"]
        assert bool(sampled) == (seed == 0)  # then the plan of the earlier question


def test_zeros_come_and_go():
    """Which entries of the pattern are zero is kept too, and is no promise."""
    hold = {"at": 0.0}
    problem = Problem(lambda x: (x - hold["at"]).relu() + 0.5 * x.roll(1).relu(), (300,), 2)
    for hold["at"] in (0.0, 0.0, -9.0, -9.0, 0.3, 9.0):
        y, x = at_random(problem)
        np.testing.assert_array_equal((d(y) / d(x)).sparse().toarray(), row_loop(y, x).numpy())


def test_what_is_returned_is_the_users_to_write():
    y, x = at_random(PROBLEMS["periodic"])
    truth = row_loop(y, x).numpy()
    for _ in range(3):
        found = (d(y) / d(x)).sparse()
        np.testing.assert_allclose(found.toarray(), truth, rtol=1e-12, atol=1e-12)
        found.data[:] = 7
        found.indices[:] = 0
        found.indptr[1:-1] = 3
    value = (d(y) / d(x)).value
    value.fill_(3)
    np.testing.assert_allclose((d(y) / d(x)).value.numpy(), truth, rtol=1e-12, atol=1e-12)


def test_a_hook_that_writes_into_its_gradient_does_not_spoil_the_seeds():
    def f(u):
        y = burgers(u).sin()
        y.register_hook(lambda g: g.mul_(2))
        return y

    for seed in range(4):
        y, x = at_random(Problem(f, (200,), 3), seed)
        truth = 2 * row_loop(burgers(x).sin(), x)
        J = d(y) / d(x)
        torch.testing.assert_close(J.value, truth, rtol=1e-12, atol=1e-12)
        assert not J.explain().fallbacks


@pytest.mark.parametrize("size", [1e-3, 1e-9])
@pytest.mark.parametrize("where", [(0, 5), (1, 100), (2, 17)])
def test_a_fault_in_the_batch_of_a_warm_plan_is_found(monkeypatch, where, size):
    """One number that comes back wrong."""
    y, x = at_random(PROBLEMS["burgers"])
    _ = (d(y) / d(x)).value
    y, x = at_random(PROBLEMS["burgers"], 1)
    truth = row_loop(y, x)
    pull = TorchEngine.pull

    def wrong(self, seeds, *, batched=True):
        swept = pull(self, seeds, batched=batched)
        if len(seeds) == 3:
            swept.arrays[0][where] += size
        return swept

    monkeypatch.setattr(TorchEngine, "pull", wrong)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, truth, rtol=1e-12, atol=1e-12)
    assert f"column {where[1]} swept alone" in str(J.certificate)
    assert J.certificate


@pytest.mark.parametrize("name", ["burgers", "six readings of a grid"])
@pytest.mark.parametrize("modes", ["ioio", "oioi", "iioo"])
def test_what_was_made_in_inference_mode_serves_outside_of_it_too(name, modes):
    for seed, mode in enumerate(modes):
        y, x = at_random(PROBLEMS[name], seed)
        truth = row_loop(y, x)
        with torch.inference_mode(mode == "i"):
            J = d(y) / d(x)
            np.testing.assert_allclose(J.sparse().toarray(), truth.numpy(), rtol=1e-12, atol=1e-12)
            assert not J.explain().fallbacks
            np.testing.assert_allclose((d(y) / d(x)).value.numpy().reshape(truth.shape), truth, rtol=1e-12, atol=1e-12)


def test_one_call_answers_a_warm_question_and_one_proves_it():
    for seed in range(2):
        y, x = at_random(Problem(periodic, (201,), 3), seed)
        J = d(y) / d(x)
        J.sparse()
    assert [(step.what, step.passes, step.calls) for step in J.explain().steps] == [
        ("rows together", 3, 1), ("independent check", 1, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("known", [False, True])
def test_a_fault_in_columns_that_were_pushed_together_is_found(monkeypatch, known):
    problem = PROBLEMS["six readings of a grid"]
    if known:
        y, x = at_random(problem, 1)
        _ = (d(y) / d(x)).value
    y, x = at_random(problem)
    truth = row_loop(y, x)
    push = TorchEngine.push

    def wrong(self, tangents, *, batched=True):
        swept = push(self, tangents, batched=batched)
        if len(swept.arrays[0]) == 5:  # the five passes of the plan, not a column that is looked at again
            swept.arrays[0].view(5, -1)[2, 123] += 1e-8
        return swept

    monkeypatch.setattr(TorchEngine, "push", wrong)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-12, atol=1e-12)
    assert "swept alone" in str(J.certificate)
    assert J.certificate
