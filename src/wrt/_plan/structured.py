"""Guess and certify: a few rows show how the axes of y and x relate; rows that cannot meet travel together."""

from __future__ import annotations

from collections.abc import Callable

from wrt._core.ask import Ask
from wrt._core.pattern import Way
from wrt._core.plan import Lines
from wrt._core.protocol import Marks, Numbers
from wrt._plan.patterns.guess import compression, guess
from wrt._plan.patterns.samples import Samples, spread_rows
from wrt._plan.thresholds import DENSE_SHARE, GAIN, SAMPLED_ROWS

Look = Callable[[Ask, Numbers], Marks]
"""Rows of a question, or weighted sums (k, m) of them -> where each is nonzero, (k, n)."""


def sample(ask: Ask, look: Look) -> Samples:
    """A few rows that lie far apart."""
    rows = spread_rows(ask.rows.shape, SAMPLED_ROWS)
    return Samples(rows, look(ask, rows))


def structured(ask: Ask, samples: Samples, instead_of: int, push_cost: float) -> Lines | str:
    """The plan that these samples suggest, or why there is none; `push_cost` is the price of a push next to a pull."""
    if samples.density > DENSE_SHARE:
        return f"structured: {len(samples.rows)} sampled rows are {100 * samples.density:.0f} % full"
    found = guess(samples, ask.rows.shape, ask.x.shape)
    if found is None:
        return "structured: no axis of x follows an axis of y"
    way: Way = "push" if found.passes_by("push") * push_cost < found.passes else "pull"
    if found.passes_by(way) > GAIN * instead_of - len(samples.rows):
        return f"structured: {found} would take {found.passes_by(way)} passes, a direct sweep takes {instead_of}"
    shared = compression(found, way)
    if shared is None:
        return f"structured: {found}, but rows that should not meet do"
    shown = f"{len(samples.rows)} sampled rows show that {found}"
    because = f"{shown}; {shared.passes} passes instead of {instead_of}"
    return Lines(way, shared.passes, because, "structured", shared=shared)
