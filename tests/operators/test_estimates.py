"""Trace and diagonal from random probes: unbiased, with error bars that mean what they say."""

import numpy as np
import pytest
import torch

from tests.operators._problems import full_rank, matrix, network
from wrt import d
from wrt._operators import estimates
from wrt.errors import WrongShape


def test_the_trace_lies_within_its_error() -> None:
    y, x = full_rank(300)
    J = d(y) / d(x)
    found = J.estimate_trace(passes=60)
    truth = np.trace(matrix(y, x))
    assert abs(found.value - truth) < 4 * found.error
    assert 0 < found.error < 0.05 * abs(truth)
    assert found.passes == J.explain().passes <= 66


def test_the_diagonal_lies_within_its_errors() -> None:
    y, x = full_rank(200)
    found = (d(y) / d(x)).estimate_diagonal(passes=80)
    truth = np.diag(matrix(y, x))
    away = np.abs(found.value - truth) / found.error
    assert found.value.shape == (200,)
    assert 0.5 < np.mean(away < 1) < 0.85  # two in three
    assert np.mean(away < 2) > 0.88
    assert np.all(away < 6)


def test_the_errors_of_many_estimates_are_standard_errors() -> None:
    dense = np.random.default_rng(0).standard_normal((80, 80))
    truth = np.trace(dense)
    away = []
    for seed in range(300):
        found = estimates.trace(lambda u: u @ dense, 80, 30, seed=seed)
        away.append((found.value - truth) / found.error)
    assert abs(np.mean(away)) < 0.25  # unbiased
    assert 0.55 < np.mean(np.abs(away) < 1) < 0.75  # ten samples: Student's t, not the normal
    assert np.mean(np.abs(away) < 3) > 0.95


def test_hutch_plus_plus_beats_plain_probes_where_j_decays() -> None:
    values = 0.7 ** np.arange(120.0)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((120, 120)))[0]
    dense = turn * values @ turn.T
    generator = np.random.default_rng(2)
    plain = estimates._hutchinson_trace(lambda u: u @ dense, 120, 45, generator)
    better = estimates.trace(lambda u: u @ dense, 120, 45)
    assert better.error < 0.05 * plain.error
    assert abs(better.value - values.sum()) < 5 * better.error


def test_few_rows_are_summed_exactly() -> None:
    y, x = full_rank(20)
    found = (d(y) / d(x)).estimate_trace(passes=64)
    assert found.error == 0
    assert found.method == "exact"
    np.testing.assert_allclose(found.value, np.trace(matrix(y, x)), rtol=1e-12)
    found = (d(y) / d(x)).estimate_diagonal(passes=64)
    np.testing.assert_allclose(found.value, np.diag(matrix(y, x)), rtol=1e-12)


def test_the_trace_of_a_hessian() -> None:
    w = torch.linspace(0, 1, 400, dtype=torch.float64).requires_grad_()
    loss = (w**3).sum() + torch.sin(w.sum())
    found = (d(loss) / d(w) / d(w)).estimate_trace(passes=30)
    truth = float(((6 * w).sum() - 400 * torch.sin(w.sum())).detach())
    assert abs(found.value - truth) < 4 * found.error + 1e-6


def test_a_map_that_is_not_square_has_no_trace() -> None:
    y, x = network(7, 50)
    with pytest.raises(WrongShape) as caught:
        (d(y) / d(x)).estimate_trace()
    assert str(caught.value) == (
        "a Jacobian of 7 x 50 has no trace\n"
        "  y has shape (7,), x has shape (50,)\n"
        "  ask for elements of both sides that match, for example d(y)[:n] / d(x)[:n]"
    )


def test_the_repr_says_value_error_and_passes() -> None:
    y, x = full_rank(20)
    assert repr((d(y) / d(x)).estimate_trace()).endswith("± 0 (21 passes, exact)")
