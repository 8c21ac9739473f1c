"""Entries that are not finite are asked for again, alone.

A sweep multiplies zeros of its seed with whatever slope it meets, and 0 x inf is NaN: reverse mode says that
sqrt(x)[1] has the slope NaN in x[0] = 0, on which it does not depend at all. Swept the other way, the same entry never
meets the infinity. An entry is replaced only by a finite one. What is NaN both ways, as in x / 0, is zero where the
operations on the way say that the two elements never meet, whatever the numbers are; otherwise it stays NaN.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.plan import Way
from wrt._core.protocol import Array, CannotBatch, Linear
from wrt._core.report import Report, Step
from wrt._run.columns import pull_columns, tangents
from wrt._sparsity.compose import composed

MOST = 256  # rows or columns recomputed; a network that is NaN everywhere stays so
FEW = 2**22  # entries of which a pattern is laid out


def non_finite(ask: Ask, linear: Linear, array: Array, way: Way, report: Report) -> Array:
    """The answer with its non-finite entries asked for again."""
    arrays = ask.y.record.backend.arrays
    if (way == "pull" and ask.y.size == 1) or (way == "push" and ask.n == 1 == ask.x.values[0].size):
        return array  # a seed without zeros: what is not finite is the engine's own answer
    if arrays.all_finite(array):
        return array
    array = _the_other_way(ask, linear, array, way, report)
    return array if arrays.all_finite(array) else _where_nothing_meets(ask, linear, array, report)


def _the_other_way(ask: Ask, linear: Linear, array: Array, way: Way, report: Report) -> Array:
    arrays = ask.y.record.backend.arrays
    bad = ~arrays.isfinite(array)  # (m, n)
    lines = np.flatnonzero(bad.any(axis=0 if way == "pull" else 1))
    if len(lines) > MOST:
        report.notes.append(f"{int(bad.sum())} entries are not finite; too many to ask for each alone")
        return array
    try:
        other = _columns(ask, linear, lines) if way == "pull" else _rows(ask, linear, lines)
    except CannotBatch as refusal:
        report.notes.append(f"{int(bad.sum())} entries are not finite, and the other direction is refused: {refusal}")
        return array
    report.steps.append(
        Step("entries that were not finite", "push" if way == "pull" else "pull", "alone", len(lines), len(lines))
    )
    better = np.zeros_like(bad)
    spot = (slice(None), lines) if way == "pull" else (lines, slice(None))
    better[spot] = bad[spot] & arrays.isfinite(other)
    rows, columns = np.nonzero(better)
    if not len(rows):
        return array
    report.notes.append(f"{len(rows)} entries were 0 x inf in one direction and finite in the other")
    place = np.searchsorted(lines, columns if way == "pull" else rows)
    values = arrays.numpy(other)[(rows, place) if way == "pull" else (place, columns)]
    return arrays.place(array, (rows, columns), arrays.from_numpy(values, ask.x.values[0]))


def _where_nothing_meets(ask: Ask, linear: Linear, array: Array, report: Report) -> Array:
    """Zero where no element of y can depend on that element of x."""
    part = ask.x.parts[0]
    plain = len(ask.x.parts) == 1 and part.into is None and not part.component
    meet = _can_meet(ask, linear) if plain and ask.m * ask.n <= FEW else None
    if meet is None:
        return array
    arrays = ask.y.record.backend.arrays
    rows, columns = np.nonzero(~arrays.isfinite(array) & ~meet)
    if len(rows):
        report.notes.append(f"{len(rows)} entries were 0 x inf in both directions, of elements that never meet: zero")
        array = arrays.place(array, (rows, columns), arrays.from_numpy(np.zeros(len(rows)), part.value))
    return array


def _can_meet(ask: Ask, linear: Linear) -> npt.NDArray[np.bool_] | None:
    """(m, n), as rules for the operations on the way say, whatever the numbers are; None where one has none."""
    rows, columns = ask.rows.positions, ask.x.parts[0].elements.positions
    reach, find = getattr(linear, "reach", None), getattr(ask.y.record, "local_maps", None)
    if reach is not None:
        told: npt.NDArray[np.bool_] | None = reach(rows, certain=True)
        return None if told is None else told[:, columns]
    local = None if find is None else find(ask.y, ask.x.parts[0].value, certain=True)
    pattern = None if local is None else composed(local, rows, columns, most=1)
    return None if pattern is None else pattern.toarray()


def _columns(ask: Ask, linear: Linear, columns: np.ndarray) -> Array:
    arrays = ask.y.record.backend.arrays
    if not linear.push_rungs:
        raise CannotBatch("this backend cannot push")
    pushed = [linear.push(tangents(ask, columns[k : k + 1]), linear.push_rungs[-1]) for k in range(len(columns))]
    flat = [arrays.zeros((1, ask.y.size), ask.y) if p is None else arrays.reshape(p, (1, -1)) for p in pushed]
    stacked = arrays.transpose(arrays.concat(flat, 0))  # (y.size, k)
    return stacked if ask.rows.everything else arrays.take(stacked, ask.rows.positions, 0)


def _rows(ask: Ask, linear: Linear, rows: np.ndarray) -> Array:
    arrays = ask.y.record.backend.arrays
    positions = ask.rows.positions
    pulled = []
    for row in rows:
        line = pull_columns(ask, linear, arrays.one_hot(ask.y, positions[row : row + 1]), linear.pull_rungs[-1])
        pulled.append(arrays.zeros((1, ask.n), ask.x.values[0]) if line is None else line)
    return arrays.concat(pulled, 0)
