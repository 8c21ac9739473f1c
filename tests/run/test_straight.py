"""A plan that has held before goes straight to its batch; whatever is not as it was is still noticed."""

import numpy as np
import pytest
import torch

import wrt
from tests.planner.problems import PROBLEMS, Problem, at_random, row_loop
from wrt import d
from wrt._backends.torch.sweep import TorchLinear
from wrt._core.protocol import CannotBatch
from wrt._planner import warm
from wrt._run import planned, straight

pytestmark = pytest.mark.usefixtures("planned_from_the_start")

STENCILS = ["burgers", "periodic", "five-point stencil, two species"]


@pytest.fixture
def looked(monkeypatch):
    """How often somebody looked closer than `straight` does."""
    seen = []
    sweep = planned.sweep_compressed
    monkeypatch.setattr(planned, "sweep_compressed", lambda *args, **kwargs: seen.append(1) or sweep(*args, **kwargs))
    return seen


@pytest.mark.parametrize("name", STENCILS)
def test_the_third_answer_goes_straight_and_is_that_of_the_row_loop(name, looked):
    for seed in range(4):
        y, x = at_random(PROBLEMS[name], seed)
        truth = row_loop(y, x).numpy()
        J = d(y) / d(x)
        np.testing.assert_allclose(J.sparse().toarray(), truth, rtol=1e-12, atol=1e-12)
        sparse = J.explain()
        J = d(y) / d(x)
        np.testing.assert_allclose(J.value.reshape(truth.shape).numpy(), truth, rtol=1e-12, atol=1e-12)
        assert J.certificate
        assert J.certificate.finite
        if seed:
            assert sparse.passes == J.explain().passes
            assert sparse.notes == J.explain().notes == ("the plan of an earlier, identical question, proven again",)
            assert len(J.explain().steps) == 1
    assert len(looked) == 2  # the first question, and the same again: then its seeds are kept


def test_a_program_that_only_looks_the_same_is_noticed(looked):
    """The key of a plan names operations and shapes; how far a roll goes, it does not see."""
    hold = {"far": 1}
    problem = Problem(lambda x: x * x.roll(hold["far"]) + x, (300,), 2)
    for far in (1, 1, 1, 5, 5, 5, 1):
        hold["far"] = far
        y, x = at_random(problem)
        J = d(y) / d(x)
        np.testing.assert_allclose(J.sparse().toarray(), row_loop(y, x).numpy(), rtol=1e-12, atol=1e-12)
        assert J.certificate
    assert len(looked) > 4


@pytest.mark.parametrize("kind", ["sparse", "value"])
def test_an_entry_that_was_not_there_before_is_in_the_answer(kind):
    hold = {"weight": torch.zeros((), dtype=torch.float64)}

    def f(x):
        y = x.sin() * x.roll(1)
        return y + torch.cat([x[250:251] * hold["weight"], 0.0 * x[1:]])

    for weight in (0.0, 0.0, 0.0, 0.5, 1e-6, 0.0):
        hold["weight"] = torch.tensor(weight, dtype=torch.float64)
        y, x = at_random(Problem(f, (300,), 2))
        J = d(y) / d(x)
        found = J.sparse().toarray() if kind == "sparse" else J.value.numpy()
        np.testing.assert_allclose(found, row_loop(y, x).numpy(), rtol=1e-9, atol=1e-12)


def test_what_is_not_finite_is_left_to_those_who_look_closer(looked):
    problem = Problem(lambda x: x.abs().sqrt() * x.roll(1), (300,), 2)
    for _ in range(3):
        y, x = at_random(problem)
        _ = (d(y) / d(x)).sparse()
    before = len(looked)
    x = torch.randn(300, dtype=torch.float64)
    x[7] = 0.0
    x.requires_grad_()
    y = problem.f(x)
    found = (d(y) / d(x)).value.numpy()
    assert len(looked) > before
    assert not np.isfinite(found[7, 7])
    warm.forget()
    np.testing.assert_array_equal(found, (d(y) / d(x)).value.numpy())  # as if nothing had been known


def test_a_batch_that_is_refused_goes_the_long_way(monkeypatch):
    problem = PROBLEMS["burgers"]
    for _ in range(3):
        y, x = at_random(problem)
        _ = (d(y) / d(x)).value

    def refuse(self, *args, **kwargs):
        raise CannotBatch("not today")

    monkeypatch.setattr(TorchLinear, "pull_at_once", refuse)
    y, x = at_random(problem)
    np.testing.assert_allclose((d(y) / d(x)).sparse().toarray(), row_loop(y, x).numpy(), rtol=1e-12, atol=1e-12)


def test_the_same_tensor_on_both_sides_is_the_identity_also_where_a_plan_of_that_form_is_known():
    for _ in range(3):
        y, x = at_random(PROBLEMS["burgers"])
        _ = (d(y) / d(x)).value
    J = d(y) / d(y)
    np.testing.assert_array_equal(J.value.numpy(), np.eye(y.numel()))
    assert J.explain().strategy == "none needed"
    np.testing.assert_array_equal((d(y) / d(y)).sparse().toarray(), np.eye(y.numel()))


def test_a_cut_path_is_still_an_error():
    f = PROBLEMS["burgers"].f
    for _ in range(3):
        y, x = at_random(PROBLEMS["burgers"])
        _ = (d(y) / d(x)).sparse()
    u = torch.randn(x.shape, dtype=torch.float64, requires_grad=True)
    y = f(u)
    with pytest.raises(wrt.errors.NoPath):
        (d(y) / d(x)).sparse()
    with pytest.raises(wrt.errors.NotRecorded):
        (d(y) / d(u.detach())).sparse()


def test_settings_are_looked_at_again(monkeypatch):
    y, x = at_random(PROBLEMS["burgers"])
    for _ in range(3):
        _ = (d(y) / d(x)).value
    went = []
    monkeypatch.setattr(straight, "seeds_and_probe", lambda *args: went.append(1))
    with wrt.options(way="pull"):
        J = d(y) / d(x)
        np.testing.assert_allclose(J.value.numpy(), row_loop(y, x).numpy(), rtol=1e-12, atol=1e-12)
        assert J.explain().strategy == "direct"
    assert not went
