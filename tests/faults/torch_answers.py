"""Questions of torch programs: their truth, and what a planted fault came to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.faults.faults import SIZES, Fault, Numbers
from tests.faults.judge import Outcome, outcome
from tests.faults.plant import Change, Place, Plant, first_plan_spoiled, first_plan_watched
from tests.faults.torch_programs import PROGRAMS, Program
from wrt import d
from wrt._core.plan import Plan
from wrt._run import answer, sweep

Tensor = torch.Tensor


class Question:
    """One program in one type: y, x and all rows by a loop of plain backward passes."""

    def __init__(self, name: str, dtype: str) -> None:
        self.name, self.dtype, self.program = name, dtype, PROGRAMS[name]
        self.y, self.x = self.program.at_random(getattr(torch, dtype))
        self.truth = row_loop(self.y, self.x, self.program)
        self.plan: Plan | None = None
        if dtype == "bfloat16" and self.program.strategy == "colored":
            self.plan = question(name, "float64").first_plan()  # the pattern of bfloat16 operators is not looked for

    def derivative(self) -> Any:
        rows, columns = self.program.rows, self.program.columns
        return (d(self.y)[rows] if rows else d(self.y)) / (d(self.x)[columns] if columns else d(self.x))

    def first_plan(self) -> Plan:
        with self.as_planned():
            ask = self.derivative().ask
            return answer.first_plan(ask)[0]

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
            value = J.value
        return self._outcome(J, plant, value)

    def plant_plan(self, change: Change) -> Outcome:
        """Ask with a first plan that is wrong."""
        J, plant = self.derivative(), Plant(lambda J, size: J, 0.0)
        with self.as_planned(), first_plan_spoiled(plant, change, self.truth):
            value = J.value
        return self._outcome(J, plant, value)

    def _outcome(self, J: Any, plant: Plant, value: Tensor) -> Outcome:
        assert plant.plan is not None
        kind = plant.plan.strategy, plant.plan.way
        assert kind == (self.program.strategy, self.program.way), f"{self.name}: the first plan is {kind}"
        return outcome(J.explain().report, plant, value.double().numpy(), self.truth, self.dtype)


def _before(plan: Plan | None, others: Any) -> Iterator[Any]:
    yield plan
    yield from others


@cache
def question(name: str, dtype: str) -> Question:
    return Question(name, dtype)


def row_loop(y: Tensor, x: Tensor, program: Program | None = None) -> Numbers:
    """The truth: one plain backward for each row."""
    rows = np.arange(y.numel()).reshape(y.shape)[program.rows if program else ()].reshape(-1)
    columns = np.arange(x.numel()).reshape(x.shape)[program.columns if program else ()].reshape(-1)
    found = []
    for row in rows.tolist():
        seed = torch.zeros(y.numel(), dtype=y.dtype)
        seed[row] = 1
        (gradient,) = torch.autograd.grad(y, x, seed.reshape(y.shape), retain_graph=True)
        found.append(gradient.reshape(-1)[columns])
    truth: Numbers = torch.stack(found).double().numpy()
    return truth
