"""A question in any framework, asked with a fault in its first plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.faults.faults import SIZES, Fault, Numbers
from tests.faults.judge import Outcome, outcome
from tests.faults.plant import Change, Place, Plant, first_plan_spoiled, first_plan_watched
from wrt._core.plan import Plan
from wrt._core.report import Report
from wrt._run import answer, sweep
from wrt._run.forms import Dense
from wrt._run.prove import Proof
from wrt._run.run import run
from wrt._run.sweep import Sweeper


@dataclass(frozen=True)
class Program:
    """A function, its x, what of both is asked for, and the strategy and way of the plan that answers it first."""

    f: Callable[[Any], Any]
    shape: tuple[int, ...]
    strategy: str
    way: str = "pull"
    rows: tuple[Any, ...] = ()
    columns: tuple[Any, ...] = ()
    lines: int | None = None
    """Lines in one call of the engine, where several calls are wanted."""

    def point(self, seed: int = 0) -> Numbers:
        return np.random.default_rng(seed).standard_normal(self.shape)

    def chosen(self, truth: Numbers, y: tuple[int, ...], x: tuple[int, ...]) -> Numbers:
        """Of all rows and columns those that are asked for."""
        rows = np.arange(int(np.prod(y))).reshape(y)[self.rows].reshape(-1)
        columns = np.arange(int(np.prod(x))).reshape(x)[self.columns].reshape(-1)
        return truth[np.ix_(rows, columns)]


class Question:
    """One program in one type: how to ask about it, and all rows by a loop of plain backward passes."""

    def __init__(self, name: str, dtype: str, program: Program, ask: Callable[[], Any], truth: Numbers) -> None:
        self.name, self.dtype, self.program, self.derivative, self.truth = name, dtype, program, ask, truth
        self.plan: Plan | None = None
        """The plan to try first, where the planner would choose another one."""

    def first_plan(self) -> Plan:
        with self.as_planned():
            return answer.first_plan(self.derivative().ask)[0]

    @contextmanager
    def as_planned(self) -> Iterator[None]:
        """With as many lines in a call, and with that plan first, as this question wants it."""
        with pytest.MonkeyPatch.context() as patch:
            if self.program.lines is not None:
                patch.setattr(sweep, "lines_per_call", lambda ask, count: self.program.lines)
            if self.plan is not None:
                right = answer.plans
                patch.setattr(answer, "plans", lambda *given, **how: _before(self.plan, right(*given, **how)))
            yield

    def plant(self, fault: Fault, place: Place | None = None) -> Outcome:
        """Ask with a fault: in what the first plan hands out, or at a place on the way."""
        J, plant = self.derivative(), Plant(fault, SIZES[self.dtype])
        with self.as_planned(), first_plan_watched(plant, whole=place is None) as patch:
            if place is not None:
                place(patch, plant)
            value = J.numpy()
        return self._outcome(J, plant, value)

    def plant_plan(self, change: Change) -> Outcome:
        """Ask with a first plan that is wrong."""
        J, plant = self.derivative(), Plant(lambda J, size: J, 0.0)
        with self.as_planned(), first_plan_spoiled(plant, change, self.truth):
            value = J.numpy()
        return self._outcome(J, plant, value)

    def _outcome(self, J: Any, plant: Plant, value: Any) -> Outcome:
        assert plant.plan is not None
        kind = plant.plan.strategy, plant.plan.way
        assert kind == (self.program.strategy, self.program.way), f"{self.name}: the first plan is {kind}"
        return outcome(J.explain().report, plant, np.asarray(value, dtype=np.float64), self.truth, self.dtype)

    def smallest_noticed(self) -> tuple[float, float]:
        """The size of a scaled column, and of one spoiled entry next to its column, from which on they are noticed."""
        with self.as_planned():
            ask = self.derivative().ask
            sweeper = Sweeper(ask, ask.y.record.engine(ask.y, ask.x.values), Report())
            proof, form = Proof(sweeper), run(sweeper, self.plan or self.first_plan())
        assert form is not None
        arrays, x = sweeper.arrays, ask.x.values[0]
        right = np.array(arrays.numpy(form.dense()), dtype=np.float64)
        sizes = np.linalg.norm(right, axis=0)
        column = int(sizes.argmax())
        row = int(np.abs(right[:, column]).argmax())

        def notices(rows: Any, change: float) -> bool:
            spoiled = right.copy()
            spoiled[rows, column] += change * (right[rows, column] if rows == slice(None) else sizes[column])
            return not proof.judge(Dense(ask, arrays.from_numpy(spoiled, x))).certificate.passed

        assert not notices(row, 0.0)
        return _smallest(lambda size: notices(slice(None), size)), _smallest(lambda size: notices(row, size))


def _before(plan: Plan | None, others: Any) -> Iterator[Any]:
    yield plan
    yield from others


def _smallest(notices: Callable[[float], bool]) -> float:
    """The size from which on a fault is noticed, to a quarter of it."""
    low, high = 1e-18, 1e3
    if not notices(high):
        return float("inf")
    while high > 1.25 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if notices(middle) else (middle, high)
    return float(high)
