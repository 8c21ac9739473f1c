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


def test_a_probe_with_nothing_finite_proves_nothing() -> None:
    x = point()
    J = d(x / 0) / d(x)
    _ = J.value
    assert not J.certificate
    assert str(J.certificate).endswith("no finite entry to compare, so nothing is proven")


def test_an_operation_that_mixes_leaves_them_as_they_are() -> None:
    x = point()
    y = torch.softmax(x / 0, 0)
    assert torch.isnan((d(y) / d(x)).value).all()
