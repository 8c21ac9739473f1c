"""Entries that are 0 x inf in both directions are zero where the two elements never meet, and NaN where they may."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import wrt
from wrt import d

INF, NAN = float("inf"), float("nan")
DOUBLE = torch.float64


def same(got: torch.Tensor, expected: object) -> bool:
    return bool(torch.allclose(got, torch.tensor(expected, dtype=DOUBLE), equal_nan=True))


def point() -> torch.Tensor:
    return torch.tensor([1.0, 2.0], dtype=DOUBLE, requires_grad=True)


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: x / 0, [[INF, 0], [0, INF]]),
        (lambda x: (x / 0).flip(0).reshape(2, 1), [[[0, INF]], [[INF, 0]]]),
        (lambda x: torch.cat([x / 0, 3 * x]), [[INF, 0], [0, INF], [3, 0], [0, 3]]),
        (lambda x: (x * 0).reciprocal(), [[NAN, 0], [0, NAN]]),  # the slope of 1 / 0 times 0
        (lambda x: (x / 0).sum(0, keepdim=True).expand(2) * 0, [[NAN, NAN], [NAN, NAN]]),
    ],
)
def test_elements_that_never_meet_have_no_derivative(f: Callable[[torch.Tensor], torch.Tensor], expected: object) -> None:
    x = point()
    y = f(x)
    J = d(y) / d(x)
    assert same(J.value, expected)
    assert same(J[0].value, expected[0])  # type: ignore[index]
    with wrt.record():
        y = f(x)
    assert same((d(y) / d(x)).value, expected)


def test_explain_tells_of_them() -> None:
    x = point()
    J = d(x / 0) / d(x)
    _ = J.value
    assert J.explain().notes == ("2 entries were 0 x inf in both directions, of elements that never meet: zero",)


def test_where_nothing_is_finite_nothing_is_proven() -> None:
    x = point()
    J = d(x / 0) / d(x)
    _ = J.value
    assert not J.certificate
    assert str(J.certificate) == "not checked: no finite entry to compare"


def test_an_operation_that_mixes_leaves_them_as_they_are() -> None:
    x = point()
    y = torch.softmax(x / 0, 0)
    assert torch.isnan((d(y) / d(x)).value).all()


def test_a_slope_that_is_infinite_one_way_is_asked_for_the_other_way() -> None:
    x = torch.tensor([0.0, 1.0, 4.0], dtype=DOUBLE, requires_grad=True)
    y = torch.sqrt(x)
    for way in ("pull", "push"):
        with wrt.options(way=way):
            J = d(y) / d(x)
            assert same(J.value, [[INF, 0, 0], [0, 0.5, 0], [0, 0, 0.25]])
        assert J.certificate  # of the columns that are finite
        assert "1 of 3 columns are not finite and were not compared" in str(J.certificate)


def test_what_is_nan_everywhere_stays_so() -> None:
    x = torch.full((400,), NAN, dtype=DOUBLE, requires_grad=True)
    J = d(torch.cumsum(x**2, 0)) / d(x)
    assert torch.isnan(J.value[-1]).all()
    assert not J.certificate
