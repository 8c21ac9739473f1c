"""Through a waist: J = J2 @ J1, each factor a question of its own, the product proven by one plain pull."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Elements
from wrt._core.plan import Cut
from wrt._core.protocol import Array, Linear
from wrt._core.report import Certificate, Report, Step
from wrt._core.value import Part, Side, Value
from wrt._run.answer import Answer
from wrt._run.budget import SMALL, answer_bytes
from wrt._run.certify import probe_of, seed_of, settled, verdict
from wrt._run.columns import pull_columns
from wrt._run.heap import give_back
from wrt._run.waist import Sides, both_sides, held

KNOWN = "the plan of an earlier, identical question, proven again"

Solve = Callable[[Ask, Report], Array | None]
"""A factor of the product: the (m, n) block of a smaller question."""


@dataclass(slots=True)
class Factors:
    """J = last @ first: (m, width) @ (width, n)."""

    ask: Ask
    last: Array
    first: Array
    certificate: Certificate

    def dense(self) -> Array:
        give_back(self.ask)
        return self.ask.y.record.backend.arrays.matmul(self.last, self.first)

    @property
    def finite(self) -> bool:
        arrays = self.ask.y.record.backend.arrays
        return self.certificate.finite or (arrays.all_finite(self.last) and arrays.all_finite(self.first))

    def diagonal(self) -> Array:
        """dy_i/dx_i, flat; the product is never formed."""
        arrays = self.ask.y.record.backend.arrays
        return arrays.total(self.last * arrays.transpose(self.first), 1)


def sweep_factors(ask: Ask, linear: Linear, waist: list[Value], solve: Solve, report: Report) -> Factors | None:
    """Both sides of the cut through the tensors of a waist; None where a side has no answer."""
    sides = both_sides(ask, waist[0]) if len(waist) == 1 else None
    if sides is not None:
        report.steps.extend(sides.steps)
        return _proven(ask, sides)
    last = solve(Ask(ask.y, ask.rows, _side(waist)), report)
    firsts = [solve(Ask(value, Elements.all(value.shape), ask.x), report) for value in waist]
    if last is None or any(first is None for first in firsts):
        return None
    first = ask.y.record.backend.arrays.concat(firsts, 0)
    return Factors(ask, last, first, _certificate(ask, last, first, _pulled(ask, linear, report)))


def through_again(ask: Ask, plan: Cut) -> Answer | None:
    """A question whose like was cut before: through the tensor that lies where the waist lay; None for all but the usual."""
    follow = getattr(ask.y.record, "follow", None)
    if follow is None or len(plan.trails) != 1 or answer_bytes(ask) >= SMALL:
        return None
    waist = follow(ask.y, plan.trails[0])
    sides = both_sides(ask, waist) if waist is not None and waist.size == plan.width else None
    found = None if sides is None else _proven(ask, sides)
    if sides is None or found is None or not (found.certificate and found.certificate.finite):
        return None
    notes = [KNOWN, *ask.x.notes]
    return Answer(found.dense(), True, Report(plan.strategy, plan.because, sides.steps, [], notes, found.certificate))


def _proven(ask: Ask, sides: Sides) -> Factors:
    last, first, certificate = sides.last, sides.first, held(ask, sides)
    if certificate is None:
        expected = ask.y.record.backend.arrays.reshape(sides.expected, (1, ask.n))
        certificate = replace(_certificate(ask, last, first, expected), probe=sides.probe)
    return Factors(ask, last, first, certificate)


def _side(values: list[Value]) -> Side:
    """All numbers of the waist, one Value after another."""
    if len(values) == 1:
        return Side((values[0].size,), (Part(values[0], _flat(values[0])),))
    starts = np.cumsum([0, *(value.size for value in values)])
    parts = [
        Part(value, _flat(value), np.arange(start, start + value.size))
        for value, start in zip(values, starts[:-1], strict=True)
    ]
    return Side((int(starts[-1]),), tuple(parts))


def _flat(value: Value) -> Elements:
    return Elements(value.shape, (value.size,), 0, (1,))


def _pulled(ask: Ask, linear: Linear, report: Report) -> Array | None:
    """u @ J by one plain pull, (1, n)."""
    rung = linear.pull_rungs[-1]
    report.steps.append(Step("certificate", "pull", rung, 1, 1))
    return pull_columns(ask, linear, seed_of(ask, probe_of(ask)), rung)


def _certificate(ask: Ask, last: Array, first: Array, expected: Array | None) -> Certificate:
    """u @ J2 @ J1 next to what the engine's own pull says of u @ J."""
    arrays = ask.y.record.backend.arrays
    probe = arrays.cast_like(probe_of(ask), last)  # (1, m)
    got = arrays.matmul(arrays.matmul(probe, last), first)
    plain = None if expected is None else settled(ask, got, expected)
    if plain is not None:
        return plain
    size = arrays.matmul(arrays.matmul(arrays.abs(probe), arrays.abs(last)), arrays.abs(first))
    return verdict(ask, got, got * 0 if expected is None else expected, size)
