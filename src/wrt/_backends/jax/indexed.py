"""Rules for marks where another array tells the places: gathers, scatters, slices that start somewhere.

The operation is replayed on the numbers 1, 2, 3, ... of the elements, which then show where each of them went.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from jax.lax import GatherDimensionNumbers

from wrt._backends.jax.interpreted import indexing
from wrt._backends.jax.interpreted.shapes import places
from wrt._backends.jax.kinds import Marked, Marks, NoRule, rule
from wrt._core.index import Shape

Labels = npt.NDArray[np.int64]


def labels(shape: Shape) -> Labels:
    """Elements by number; 0 stands for what comes from nowhere."""
    return np.arange(1, int(np.prod(shape)) + 1).reshape(shape)


def sent_back(marks: Marks, came_from: Labels, shape: Shape) -> Marks:
    """Marks of an array of this shape, from those of an array whose elements came from there."""
    found = np.zeros((len(marks), int(np.prod(shape)) + 1), dtype=bool)
    row, element = np.nonzero(marks.reshape(len(marks), -1))
    found[row, came_from.reshape(-1)[element]] = True
    return found[:, 1:].reshape(len(marks), *shape)


@rule("gather")
def _gather(op: Marked) -> list[Marks | None]:
    came_from = indexing.RULES["gather"](labels(op.shapes[0]), op.number(1), **(op.params | {"fill_value": 0}))
    return op.only_first(sent_back(op.marks, came_from, op.shapes[0]))


@rule("scatter-add", "scatter")
def _scatter(op: Marked) -> list[Marks | None]:
    """What is added to stays where it is; what is overwritten is gone."""
    written = _written(op)
    kept = op.marks
    if op.name == "scatter":
        kept = kept & ~np.isin(labels(op.shapes[0]), written)
    updates = op.marks.reshape(len(op.marks), -1)
    updates = np.pad(updates, ((0, 0), (1, 0)))[:, written.reshape(-1)].reshape(len(updates), *op.shapes[2])
    return [kept, None, updates]


def _written(op: Marked) -> Labels:
    """For each element of the update the element that it is written to."""
    numbers, shape = op.params["dimension_numbers"], op.shapes[0]
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = iter(op.shapes[2][k] for k in numbers.update_window_dims)
    back = GatherDimensionNumbers(
        offset_dims=numbers.update_window_dims,
        collapsed_slice_dims=numbers.inserted_window_dims,
        start_index_map=numbers.scatter_dims_to_operand_dims,
        operand_batching_dims=numbers.operand_batching_dims,
        start_indices_batching_dims=numbers.scatter_indices_batching_dims,
    )
    sizes = tuple(1 if axis in gone else next(window) for axis in range(len(shape)))
    found: Labels = indexing.RULES["gather"](labels(shape), op.number(1), back, sizes, op.params["mode"], 0)
    return found


def _part(op: Marked, sizes: Any, first: int) -> tuple[slice, ...]:
    """The slice of the first input that starts where the inputs from `first` on say."""
    return (slice(None), *places(op.shapes[0], sizes, [op.number(first + axis) for axis in range(len(sizes))]))


@rule("dynamic_slice")
def _dynamic_slice(op: Marked) -> list[Marks | None]:
    marks = np.zeros((len(op.marks), *op.shapes[0]), dtype=bool)
    marks[_part(op, op.params["slice_sizes"], 1)] = op.marks
    return op.only_first(marks)


@rule("dynamic_update_slice")
def _dynamic_update_slice(op: Marked) -> list[Marks | None]:
    if any(op.wanted[2:]):
        raise NoRule(op.name)
    part = _part(op, op.shapes[1], 2)
    kept = op.marks.copy()
    kept[part] = False
    return [kept, op.marks[part], *(None for _ in op.shapes[2:])]
