"""Vectors the user gave, in the shape of one side of a map or with one more axis at the end; and numbers that are none."""

from __future__ import annotations

from typing import Any

import numpy as np

from wrt._core.index import Shape
from wrt._core.protocol import Array
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
