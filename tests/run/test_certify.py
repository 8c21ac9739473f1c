"""What a certificate allows follows from the type of the numbers, the rows that are summed and the operations on the way."""

import pytest
import torch

from tests.planner.problems import row_loop
from wrt import d
from wrt._run.certify import tolerance


def deep(depth, dtype=torch.float32, size=12):
    torch.manual_seed(0)
    W = torch.randn(size, size, dtype=dtype) / size**0.5
    x = torch.randn(size, dtype=dtype, requires_grad=True)
    y = x
    for _ in range(depth):
        y = torch.sin(W @ y) + 0.3 * y
    return y, x


def allowed(y, x):
    return tolerance((d(y) / d(x)).ask)


def test_more_operations_are_allowed_more_roundoff():
    steps = [allowed(*deep(depth)) for depth in (1, 4, 16, 64)]
    assert steps == sorted(steps)
    assert steps[-1] > 5 * steps[0]
    assert steps[0] < 1e-3  # a single step in single precision


def test_double_precision_is_held_to_its_own_roundoff():
    assert allowed(*deep(4, torch.float64)) < 1e-8 * allowed(*deep(4)) * 2


def test_more_rows_are_allowed_more_roundoff():
    assert allowed(*deep(4, size=400)) > allowed(*deep(4, size=12))


@pytest.mark.parametrize("depth", [1, 10, 100, 400])
def test_a_deep_program_raises_no_false_alarm_and_its_residual_is_far_from_one(depth):
    y, x = deep(depth)
    J = d(y) / d(x)
    scale = row_loop(y, x).abs().max()
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=0, atol=float(scale) * 1e-4)
    assert J.certificate.residual < J.certificate.tolerance / 4
    assert not J.explain().fallbacks
