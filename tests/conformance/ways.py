"""Every way of asking, each as a check of one scenario in one framework against its closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import wrt
from tests._snapshot import unchanged
from tests.conformance.frameworks import Framework
from tests.conformance.scenarios import SCENARIOS, Scenario
from wrt import d

EXACT = 1e-12  # float64, relative to the largest entry
SINGLE = 2e-6


class Asked:
    """A scenario, recorded in a framework, with its closed form at hand."""

    def __init__(self, framework: Framework, scenario: Scenario, dtype: str | None = None) -> None:
        self.framework, self.scenario = framework, scenario
        self.single = dtype == "float32"
        self.point = [np.asarray(x, dtype or x.dtype) for x in scenario.point]
        given = [framework.array(x) for x in self.point]
        with unchanged(*given):
            self.t = framework.trace(lambda *xs: scenario.function(framework, *xs), *given)
        self.truth = [np.asarray(J) for J in scenario.jacobian(*scenario.point)]

    @property
    def tolerance(self) -> float:
        return (SINGLE if self.single else EXACT) * self.framework.rough

    def J(self, k: int = 0) -> Any:
        return d(self.t.output) / d(self.t.inputs[k])

    def each(self) -> Any:
        for k, truth in enumerate(self.truth):
            yield self.J(k), truth, truth.ndim - self.point[k].ndim

    def same(self, answer: Any, truth: Any, tolerance: float | None = None) -> None:
        got = answer.numpy() if hasattr(answer, "numpy") else np.asarray(answer)
        truth = np.asarray(truth)
        assert got.shape == truth.shape
        scale = np.abs(truth).max(initial=1.0)
        np.testing.assert_allclose(got, truth, rtol=0, atol=(tolerance or self.tolerance) * scale)


def element(asked: Asked) -> None:
    for J, truth, _ in asked.each():
        at = tuple(size // 2 for size in truth.shape)
        asked.same(J[at], truth[at])
        assert J[at].shape == ()


def row(asked: Asked) -> None:
    for J, truth, rows in asked.each():
        at = (0,) * rows
        asked.same(J[at], truth[at])
        assert not rows or J[at].explain().passes <= 2


def column(asked: Asked) -> None:
    for J, truth, rows in asked.each():
        at = (slice(None),) * rows + (-1,) * (truth.ndim - rows)
        asked.same(J[at], truth[at])


def block(asked: Asked) -> None:
    for J, truth, _ in asked.each():
        at = tuple(slice(size // 2, None) for size in truth.shape)
        asked.same(J[at], truth[at])


def whole(asked: Asked) -> None:
    for k, (J, truth, rows) in enumerate(asked.each()):
        asked.same(J, truth)
        m, n = int(np.prod(truth.shape[:rows])), asked.point[k].size
        assert J.explain().passes <= min(m, n) + 2 + asked.scenario.extra_passes
        assert J.certificate


def pushed(asked: Asked) -> None:
    for k, (J, truth, _) in enumerate(asked.each()):
        v = np.random.default_rng(3).normal(size=asked.point[k].shape).astype(asked.point[k].dtype)
        asked.same(np.asarray(J @ v), np.tensordot(truth, v, v.ndim))


def pulled(asked: Asked) -> None:
    for k, (J, truth, rows) in enumerate(asked.each()):
        u = np.random.default_rng(4).normal(size=truth.shape[:rows]).astype(truth.dtype)
        asked.same(np.asarray(u @ J), np.tensordot(u, truth, rows))
        own = J @ np.ones_like(asked.point[k])  # an array of the framework's, which may try the product itself
        asked.same(np.asarray(own @ J), np.tensordot(np.asarray(own), truth, rows))


def intermediate(asked: Asked) -> None:
    assert asked.scenario.middle is not None
    asked.same(d(asked.t.output) / d(asked.t["h"]), asked.scenario.middle(*asked.scenario.point))


def same_tensor(asked: Asked) -> None:
    """Elements of one tensor that was filled step by step, with respect to each other."""
    h = asked.t["h"]
    slopes = 1.5 * (1 - np.tanh(np.asarray(h.value)) ** 2)
    for i, j in [(5, 2), (4, 0), (3, 3), (1, 4)]:
        truth = np.prod(slopes[j:i]) if i >= j else 0.0
        asked.same(d(h)[i] / d(h)[j], truth)


def unconnected(asked: Asked) -> None:
    J = asked.J(1)
    asked.same(J, asked.truth[1])
    assert not J.connected
    assert asked.J(0).connected


def second(asked: Asked) -> None:
    assert asked.scenario.second is not None
    J = d(asked.t.output) / d(asked.t.inputs[0]) / d(asked.t.inputs[0])
    asked.same(J, asked.scenario.second(*asked.scenario.point), asked.tolerance * (asked.framework.rough**0.5))


def dtype(asked: Asked) -> None:
    for J, truth, _ in asked.each():
        asked.same(J, truth)
        assert J.numpy().dtype == np.float32


def empty(asked: Asked) -> None:
    for J, truth, _ in asked.each():
        assert J.shape == truth.shape
        assert J.numpy().size == 0


def is_complex(asked: Asked) -> None:
    for J, truth, _ in asked.each():
        asked.same(J, truth)


def infinite_slope(asked: Asked) -> None:
    """A structurally impossible entry is 0, never NaN."""
    np.testing.assert_allclose(asked.J()[1].numpy(), [0.0, 0.5], rtol=1e-12)


def refuses_a_real_of_a_complex(framework: Framework) -> None:
    t = framework.trace(lambda z: framework.sum(framework.abs(z)), framework.array(np.array([0.3 + 0.4j])))
    try:
        (d(t.output) / d(t.inputs[0])).value
    except wrt.errors.NotHolomorphic:
        return
    raise AssertionError("a real y of a complex x has no complex derivative")


WAYS: dict[str, Callable[[Asked], None]] = {
    "element": element,
    "row": row,
    "column": column,
    "block": block,
    "whole": whole,
    "J @ v": pushed,
    "u @ J": pulled,
    "intermediate": intermediate,
    "second order": second,
    "float32": dtype,
    "same tensor": same_tensor,
    "unconnected": unconnected,
    "empty": empty,
    "complex": is_complex,
    "infinite slope": infinite_slope,
}
SPECIAL = ("same tensor", "unconnected", "empty", "complex", "infinite slope")


def fits(scenario: Scenario, way: str) -> bool:
    """Whether a scenario has this question."""
    if scenario.ways:
        return way in scenario.ways
    if way == "intermediate":
        return scenario.middle is not None
    if way == "second order":
        return scenario.second is not None
    return way not in SPECIAL


CASES: list[tuple[Scenario, str]] = [(scenario, way) for scenario in SCENARIOS for way in WAYS if fits(scenario, way)]
IDS = [f"{scenario}: {way}" for scenario, way in CASES]


def run(framework: Framework, scenario: Scenario, way: str) -> None:
    """One cell of the table; raises where the answer is not the closed form's."""
    WAYS[way](Asked(framework, scenario, "float32" if way == "float32" else None))
