"""One block of a Jacobian, the same bits wherever and whenever it is computed.

A block depends on the run, the question and the region alone, not on what the process did before: plans of earlier
questions are put aside. What a structure or a narrow cut gives is computed once, and every block is read from it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from wrt._beyond.thresholds import ENTRY_BYTES
from wrt._core.ask import Ask
from wrt._core.index import Elements, Shape
from wrt._core.plan import Product
from wrt._core.protocol import Engine, random_signs
from wrt._core.report import Report
from wrt._notation.derivative import Derivative
from wrt._operators.vectors import of_gradient
from wrt._plan import cache
from wrt._plan.plans import worth_planning
from wrt._plan.thresholds import DENSE_SHARE
from wrt._run.answer import answer, first_plan, is_identity, meant
from wrt._run.compact import better_form, sweep_block
from wrt._run.forms import Factored
from wrt._run.options import current
from wrt.errors import WrongShape

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Numbers = npt.NDArray[Any]
Region: TypeAlias = tuple[slice, ...]
"""A slice of every axis of the Jacobian: y's, then x's."""


class Solver:
    """One question of one recorded run; `budget` bytes may be kept to answer blocks faster.

    The second derivative of one number is answered as the first one of its gradient, pulled once so that it can be
    differentiated again. Other higher derivatives are asked block by block as they stand.
    """

    def __init__(self, asked: Derivative, budget: int) -> None:
        self.whole = asked
        self.budget = budget
        self.report = Report()
        self._engines: dict[tuple[int, ...], Engine] = {}
        self._looked = False
        self._rows: csr_array | None = None
        self._factors: tuple[Any, Any] | None = None

    @cached_property
    def asked(self) -> Derivative | None:
        """The question as a first derivative; None where it is not one."""
        whole = self.whole
        if whole.order == 1:
            return whole
        if whole.order > 2 or whole.rows.shape != ():
            return None
        try:
            ask = of_gradient(whole._y, whole.rows, whole._sides)
        except WrongShape:
            return None
        return Derivative(ask.y, ask.rows, (ask.x,))

    @property
    def how(self) -> str:
        """In which way blocks are answered."""
        self._look()
        if self._rows is not None or self._factors is not None:
            return f"{self.report.strategy}: {self.report.because}"
        if self.asked is None:
            return "direct: the gradient is differentiated again for each block"
        return "direct: a pull for each row of a block, or a push for each column"

    def block(self, region: Region) -> Numbers:
        """The numbers of a region, in its shape."""
        self._look()
        asked = self.asked
        if asked is None:
            return self._as_it_stands(region)
        if self._rows is None and self._factors is None:
            found = self._swept(asked[region])
            return self._as_it_stands(region) if found is None else found.reshape(asked[region].shape)
        split = len(asked.rows.shape)
        here = _flat(asked.rows.shape, region[:split])
        there = _flat(asked.ask.x.shape, region[split:])
        found = self._rows[here][:, there].toarray() if self._rows is not None else self._product(here, there)
        return np.asarray(found).reshape(asked[region].shape)

    def combination(self, seed: int) -> Numbers:
        """A random combination of all rows: one pull by which the answer is known again."""
        asked = self.asked
        if asked is None:
            return self._as_it_stands(tuple(slice(0, 1) for _ in self.whole.shape[:-1]) + (slice(None),))
        weights = random_signs(1, asked.rows.size, seed).reshape(asked.rows.shape)
        return asked._y.record.backend.arrays.numpy(weights @ asked)

    def _as_it_stands(self, region: Region) -> Numbers:
        """By the ordinary way: exact zeros where nothing depends on anything, or the error that says why."""
        with cache.set_aside():
            return self.whole[region].numpy()

    def _product(self, rows: Numbers | slice, columns: Numbers | slice) -> Numbers:
        """(r, c) = (r, w) @ (w, c), where the factors live."""
        assert self._factors is not None
        assert self.asked is not None
        last, first = self._factors
        arrays = self.asked.ask.y.record.backend.arrays
        return arrays.numpy(arrays.matmul(_some(arrays, last, rows, 0), _some(arrays, first, columns, 1)))

    # ---------------------------------------------------------------- once for all blocks

    def _look(self) -> None:
        """Look for a structure or a cut that gives every block; nothing where it would not fit or not pay."""
        if self._looked:
            return
        self._looked = True
        if self.asked is None:
            return
        ask = self.asked.ask
        if not worth_planning(ask) or is_identity(ask) or not ask.one_tensor:
            return
        with cache.set_aside():
            if self._fits(ask):
                found = better_form(ask, self.report)
                if isinstance(found, Factored):
                    self._factors = found.last, found.first
                elif found is not None:
                    self._rows = found.csr()

    def _fits(self, ask: Ask) -> bool:
        """Whether what planning would keep stays within the budget, judged by the plan and by a few rows."""
        item = ask.y.record.backend.arrays.itemsize(ask.x.values[0])
        if 2 * ask.m * ask.n * item <= self.budget:
            return True
        plan, _ = first_plan(ask)
        if isinstance(plan, Product):
            return (ask.m + ask.n) * plan.passes * item <= self.budget
        rows = np.linspace(0, ask.m - 1, 5).astype(np.int64)[1:-1]
        few = Derivative(ask.y, Elements.at(ask.y.shape, ask.rows.positions[rows]), (ask.x,))
        found = self._swept(few)
        density = 0.0 if found is None else float((found != 0).mean())
        return density > DENSE_SHARE or density * ask.m * ask.n * ENTRY_BYTES <= self.budget

    # ---------------------------------------------------------------- block by block

    def _engine(self, ask: Ask) -> Engine:
        """Set up once for each meaning of x."""
        key = tuple(map(id, ask.x.values))  # alive as long as the question is
        if key not in self._engines:
            self._engines[key] = ask.y.record.engine(ask.y, ask.x.values)
        return self._engines[key]

    def _swept(self, part: Derivative) -> Numbers | None:
        """(r, c), by rows or columns of this block alone, proven by itself; None where no path leads to x."""
        ask = part.ask
        arrays = ask.y.record.backend.arrays
        if is_identity(ask) or ask.m == 0 or ask.n == 0:
            return arrays.numpy(answer(ask).array)
        ask.y.record.ready(ask.y, ask.x)
        for some in meant(ask):
            found = sweep_block(some, self._engine(some), Report(), current().way)
            if found is not None:
                return arrays.numpy(found)
        return None


def _flat(shape: Shape, region: Region) -> Numbers | slice:
    """Flat places of a region; a slice where they follow one another."""
    places = Elements.all(shape).pick(region).positions if shape else np.zeros(1, np.int64)
    if len(places) and places[-1] - places[0] == len(places) - 1 and (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


def _some(arrays: Any, whole: Any, places: Numbers | slice, axis: int) -> Any:
    if isinstance(places, slice):
        return whole[places] if axis == 0 else whole[:, places]
    return arrays.take(whole, places, axis)
