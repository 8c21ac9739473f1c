"""A question with an index applied to it: fewer columns, or entries here and there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Elements, split
from wrt._core.value import Part, Side
from wrt._run.answer import Answer, answer


def scattered(ask: Ask, entries: Elements, *, transposed: bool) -> Answer:
    """Entries here and there, flat: only the rows and columns that they touch are swept."""
    flat = entries.positions
    rows, columns = (flat % ask.m, flat // ask.m) if transposed else (flat // ask.n, flat % ask.n)
    used_rows, at_row = np.unique(rows, return_inverse=True)
    used_columns, at_column = np.unique(columns, return_inverse=True)
    some = Elements.at(ask.y.shape, ask.rows.positions[used_rows])
    block = answer(Ask(ask.y, some, columns_of(ask.x, used_columns)))
    arrays = ask.y.record.backend.arrays
    spots = at_row.reshape(-1) * max(1, len(used_columns)) + at_column.reshape(-1)
    found = arrays.take(arrays.reshape(block.array, (-1,)), spots, 0)
    return Answer(found, block.connected, block.report)


def narrowed(side: Side, index: Any) -> Side:
    """A side with an index applied to its own shape."""
    picked = Elements.all(side.shape).pick(index)
    if len(side.parts) == 1 and side.parts[0].into is None:
        elements = side.parts[0].elements.pick(index)
        otherwise = None if side.otherwise is None else narrowed(side.otherwise, index)
        return Side(elements.shape, (replace(side.parts[0], elements=elements),), otherwise, side.notes)
    return replace(columns_of(side, picked.positions), shape=picked.shape)


def each_narrowed(sides: tuple[Side, ...], index: tuple[Any, ...]) -> tuple[Side, ...] | None:
    """Sides with an index applied to their shapes one after another; None where it entangles two of them."""
    first, rest = sides[0], sides[1:]
    if not index:
        return sides
    if not rest:
        return (narrowed(first, index),)
    halves = split(index, first.shape, sum((side.shape for side in rest), ()))
    others = None if halves is None else each_narrowed(rest, halves[1])
    if halves is None or others is None:
        return None
    return (narrowed(first, halves[0]) if halves[0] else first, *others)


def columns_of(side: Side, columns: npt.NDArray[np.int64]) -> Side:
    """Some columns of a side, by their place in its flattened shape."""
    otherwise = None if side.otherwise is None else columns_of(side.otherwise, columns)
    parts = []
    for part in side.parts:
        into = np.arange(side.size) if part.into is None else part.into
        place = {int(c): k for k, c in enumerate(into)}
        kept = [(k, place[int(c)]) for k, c in enumerate(columns) if int(c) in place]
        if kept:
            here = np.array([k for k, _ in kept], dtype=np.int64)
            there = part.elements.positions[np.array([p for _, p in kept], dtype=np.int64)]
            parts.append(Part(part.value, Elements.at(part.elements.of, there), here, part.component))
    if len(parts) == 1 and len(side.parts) == 1:
        parts = [replace(parts[0], into=None)]
    return Side((len(columns),), tuple(parts) or side.parts[:1], otherwise, side.notes)
