"""Vectors the user gave, in the shape of one side of a map or with one more axis at the end; and numbers that are none."""

from __future__ import annotations

from typing import Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Elements, Shape
from wrt._core.protocol import Array
from wrt._core.value import Side, Value
from wrt._run.answer import meanings
from wrt.errors import EngineRefused, WrongShape


def columns_of(arrays: Any, given: Array, side: Shape, product: str) -> tuple[Shape, Array]:
    """The shape of the batch, () or (k,), and the vectors as (k, size)."""
    got = arrays.shape(given)
    if got == side:
        return (), arrays.reshape(given, (1, -1))
    if len(got) == len(side) + 1 and got[:-1] == side:
        return (got[-1],), arrays.transpose(arrays.reshape(given, (-1, got[-1])))
    many = f"({', '.join((*map(str, side), 'k'))})"
    raise WrongShape(
        f"{product}: the vector has shape {got}",
        f"the map takes vectors of shape {side}",
        f"give it the shape {side}, or {many} for k of them",
    )


def refuse_not_finite(numbers: Any, what: str) -> None:
    """Singular values and solutions of an infinite matrix do not exist."""
    if not np.isfinite(numbers).all():
        raise EngineRefused(
            f"{what} of a Jacobian that is not finite",
            "an entry, or a product with it, is infinite or NaN",
            "ask J.why() in a recorded run for the operation, or take the rows that are finite",
        )


def of_gradient(y: Value, rows: Elements, sides: tuple[Side, ...]) -> Ask:
    """d(y) / d(x) / d(z) of a single y: the question d(gradient) / d(z). One pull, kept differentiable."""
    record = y.record
    first, second = sides
    by = [value for side in meanings(second) for value in side.values]
    seed = record.backend.arrays.one_hot(y, rows.positions)
    for side in meanings(first):
        if not all(map(record.has_history, side.values)) or len(side.parts) != 1 or side.parts[0].into is not None:
            continue
        (gradient,) = record.engine(y, side.values).pull_traceable(seed, by)
        if gradient is None:
            continue
        picked = Elements.at(gradient.shape, side.parts[0].elements.positions.reshape(first.shape))
        if not gradient.record.has_history(gradient):
            break
        return Ask(gradient, picked, second)
    raise WrongShape(
        "this second derivative is no linear map that can be multiplied",
        "y is linear in x, or x is scattered over several writes",
        "take .value, which is exact zeros where y is linear",
    )
