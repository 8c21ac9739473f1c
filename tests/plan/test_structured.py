"""A structure that a person would see is seen, answered in its few passes, and right to the last bit that matters."""

import numpy as np
import pytest
import torch

from tests.plan.problems import PROBLEMS, Problem, at_random, brusselator, row_loop
from wrt import d, options


def swept_together(explained) -> int:
    return sum(step.passes for step in explained.steps if " together" in step.what)


@pytest.mark.parametrize("name", PROBLEMS)
def test_rows_that_cannot_meet_are_swept_together(name):
    problem = PROBLEMS[name]
    y, x = at_random(problem)
    J = d(y) / d(x)
    truth = row_loop(y, x)
    torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-12, atol=1e-12)
    explained = J.explain()
    assert explained.strategy == "structured", explained
    assert swept_together(explained) <= problem.passes, explained
    assert J.certificate
    assert J.certificate.kind == "probe"
    assert torch.all(J.value.reshape(truth.shape)[truth == 0] == 0), "what cannot depend is exactly zero"


def test_a_second_question_of_the_same_form_is_not_sampled_again():
    problem = PROBLEMS["five-point stencil, two species"]
    for seed in (0, 1, 2):
        y, x = at_random(problem, seed)
        J = d(y) / d(x)
        truth = row_loop(y, x)
        torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-12, atol=1e-12)
        sampled = [step for step in J.explain().steps if step.what == "sampled rows"]
        assert bool(sampled) == (seed == 0)
        assert J.explain().passes == (6 + 1 if seed else J.explain().passes)


def stray(row, column):
    def f(x):
        y = x + 0.5 * x.roll(1, 0)
        y = y.clone()
        y[row] = y[row] + 1e-3 * x[column] ** 2
        return y

    return Problem(f, (300,), 4)


@pytest.mark.parametrize(("row", "column"), [(137, 211), (3, 250), (150, 152), (20, 17)])
def test_a_stray_dependency_is_found_and_answered(row, column):
    y, x = at_random(stray(row, column))
    J = d(y) / d(x)
    truth = row_loop(y, x)
    torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-12, atol=1e-12)
    assert J.certificate


def test_a_stray_dependency_that_appears_later_is_found_by_the_warm_plan():
    amount = {"of": 0.0}

    def f(x):
        y = (x * x).clone()
        y[7] = y[7] + amount["of"] * x[190]
        return y

    problem = Problem(f, (200,), 1)
    y, x = at_random(problem)
    (d(y) / d(x)).value
    amount["of"] = 1e-5
    y, x = at_random(problem)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert J.explain().strategy == "structured"
    assert "column 190 swept alone" in str(J.certificate)


def test_a_guess_is_proven_even_where_certificates_are_switched_off():
    y, x = at_random(stray(137, 211))
    with options(certify=False):
        found = (d(y) / d(x)).value
    torch.testing.assert_close(found, row_loop(y, x), rtol=1e-12, atol=1e-12)


def test_rows_and_columns_that_were_selected_keep_their_structure():
    y, x = at_random(PROBLEMS["five-point stencil, two species"])
    truth = row_loop(y, x).reshape(*y.shape, *x.shape)
    found = (d(y)[:, 2:14] / d(x)[1, :, 3:12]).value
    torch.testing.assert_close(found, truth[:, 2:14, :, 1, :, 3:12], rtol=1e-12, atol=1e-12)


def test_a_single_row_never_pays_for_planning():
    y, x = at_random(PROBLEMS["burgers"])
    J = (d(y) / d(x))[17]
    J.value
    assert J.explain().passes == 1


def test_an_infinite_slope_stays_where_it_is():
    x = torch.linspace(0, 3, 300, dtype=torch.float64, requires_grad=True)
    y = torch.sqrt(x)
    found = (d(y) / d(x)).value.detach().numpy()
    expected = np.diag(np.concatenate([[np.inf], 0.5 / np.sqrt(x.detach().numpy()[1:])]))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_float32_is_answered_too():
    x = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = brusselator(x)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value.reshape(512, 512), row_loop(y, x), rtol=1e-5, atol=1e-6)
    assert J.explain().strategy == "structured"


def test_a_question_that_is_answered_at_once_is_not_planned(monkeypatch):
    monkeypatch.setattr("wrt._plan.plans.QUICK_SECONDS", 2e-3)
    x = torch.randn(80, dtype=torch.float64, requires_grad=True)
    J = d(x.sin()) / d(x)
    torch.testing.assert_close(J.value, torch.diag(x.cos()).detach())
    assert not any(step.what == "sampled rows" for step in J.explain().steps)


def test_two_answers_share_nothing(monkeypatch):
    """As on a GPU, cold and warm."""
    monkeypatch.setattr("wrt._backends.torch.arrays.TorchArrays.accelerated", lambda self, value: True)
    x = torch.randn(2, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = brusselator(x)
    first, second = d(y) / d(x), d(y) / d(x)
    expected = row_loop(y, x)
    for J in (first, second):
        torch.testing.assert_close(J.value.reshape(512, 512), expected, rtol=1e-12, atol=1e-14)
        assert J.explain().strategy == "structured"
        assert J.certificate
    first.value.zero_()
    torch.testing.assert_close(second.value.reshape(512, 512), expected, rtol=1e-12, atol=1e-14)
    assert abs((d(y) / d(x)).sparse() - expected.numpy()).max() < 1e-12
