"""Entries that are not finite are asked for again, alone.

A sweep multiplies zeros of its seed with whatever slope it meets, and 0 x inf is NaN: reverse mode says that
sqrt(x)[1] has the slope NaN in x[0] = 0, on which it does not depend at all. Swept the other way, the same entry never
meets the infinity. An entry is replaced only by a finite one. What is NaN both ways, as in x / 0, is zero where the
operations on the way say that the two elements never meet, whatever the numbers are; otherwise it stays NaN.
"""

from __future__ import annotations

import numpy as np

from wrt._core.index import Positions
from wrt._core.plan import Way
from wrt._core.protocol import Array, CannotSweep, Marks
from wrt._plan.patterns.irregular import compose
from wrt._run.sweep import Sweeper
from wrt._run.thresholds import REPAIRED_LINES

PATTERN_ENTRIES = 2**22
"""Of which a pattern is written out."""


def repair(sweeper: Sweeper, array: Array, way: Way) -> Array:
    """The answer with its non-finite entries asked for again."""
    ask, arrays = sweeper.ask, sweeper.arrays
    if (way == "pull" and ask.y.size == 1) or (way == "push" and ask.n == 1 == ask.x.values[0].size):
        return array  # a seed without zeros: what is not finite is the engine's own answer
    if arrays.all_finite(array):
        return array
    array = _the_other_way(sweeper, array, way)
    return array if arrays.all_finite(array) else _where_nothing_meets(sweeper, array)


def _the_other_way(sweeper: Sweeper, array: Array, way: Way) -> Array:
    ask, arrays, notes = sweeper.ask, sweeper.arrays, sweeper.report.notes
    bad = ~arrays.isfinite(array)  # (m, n)
    lines = np.flatnonzero(bad.any(axis=0 if way == "pull" else 1))
    if len(lines) > REPAIRED_LINES:
        notes.append(f"{int(bad.sum())} entries are not finite; too many to ask for each alone")
        return array
    try:
        other = _columns(sweeper, lines) if way == "pull" else _rows(sweeper, lines)
    except CannotSweep as refusal:
        notes.append(f"{int(bad.sum())} entries are not finite, and the other direction is refused: {refusal}")
        return array
    better = np.zeros_like(bad)
    spot = (slice(None), lines) if way == "pull" else (lines, slice(None))
    better[spot] = bad[spot] & arrays.isfinite(other)
    rows, columns = np.nonzero(better)
    if not len(rows):
        return array
    notes.append(f"{len(rows)} entries were 0 x inf in one direction and finite in the other")
    place = np.searchsorted(lines, columns if way == "pull" else rows)
    values = arrays.numpy(other)[(rows, place) if way == "pull" else (place, columns)]
    return arrays.place(array, (rows, columns), arrays.from_numpy(values, ask.x.values[0]))


def _columns(sweeper: Sweeper, columns: Positions) -> Array:
    """(m, k)"""
    if not sweeper.engine.can_push:
        raise CannotSweep("this backend cannot push")
    found = sweeper.push_columns(columns, "entries that were not finite", batched=False)
    if found is None:
        return sweeper.arrays.zeros((sweeper.ask.m, len(columns)), sweeper.ask.x.values[0])
    return sweeper.arrays.transpose(found)


def _rows(sweeper: Sweeper, rows: Positions) -> Array:
    """(k, n)"""
    found = sweeper.rows(rows, "entries that were not finite", batched=False)
    return sweeper.arrays.zeros((len(rows), sweeper.ask.n), sweeper.ask.x.values[0]) if found is None else found


def _where_nothing_meets(sweeper: Sweeper, array: Array) -> Array:
    """Zero where no element of y can depend on that element of x."""
    ask, arrays = sweeper.ask, sweeper.arrays
    meet = _can_meet(sweeper) if ask.one_tensor and ask.m * ask.n <= PATTERN_ENTRIES else None
    if meet is None:
        return array
    rows, columns = np.nonzero(~arrays.isfinite(array) & ~meet)
    if len(rows):
        words = f"{len(rows)} entries were 0 x inf in both directions, of elements that never meet: zero"
        sweeper.report.notes.append(words)
        array = arrays.place(array, (rows, columns), arrays.from_numpy(np.zeros(len(rows)), ask.x.parts[0].value))
    return array


def _can_meet(sweeper: Sweeper) -> Marks | None:
    """(m, n), as the operations on the way say, whatever the numbers are; None where one says nothing."""
    ask, part = sweeper.ask, sweeper.ask.x.parts[0]
    rows, columns = ask.rows.positions, part.elements.positions
    marks = sweeper.engine.reach(rows, certain=True)
    if marks is not None:
        return marks[:, columns]
    local = ask.y.record.local_maps(ask.y, part.value, certain=True)
    pattern = None if local is None else compose(local, rows, columns, most=1)
    return None if pattern is None else pattern.toarray()
