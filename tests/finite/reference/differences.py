"""A derivative from function values alone: central differences, extrapolated to step zero (Richardson)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
STEP = 0.04  # of the largest element, at least of one
LEVELS = 4  # each halves the step and removes one more even power of it from the error


def along(f: Callable[[Array], Array], x: Array, direction: Array) -> Array:
    """The derivative of f at x along a direction.

    >>> float(along(np.sin, np.array(0.5), np.array(1.0)).round(12)) == float(np.cos(0.5).round(12))
    True
    """
    with np.errstate(all="ignore"):
        table = [_central(f, x, direction, STEP / 2**level) for level in range(LEVELS)]
        for order in range(1, LEVELS):
            table = [(4**order * fine - rough) / (4**order - 1) for rough, fine in pairwise(table)]
    return table[0]


def _central(f: Callable[[Array], Array], x: Array, direction: Array, step: float) -> Array:
    size = step * np.abs(x).max(initial=1.0)
    return np.asarray((f(x + size * direction) - f(x - size * direction)) / (2 * size))


def jacobian(f: Callable[[Array], Array], x: Array, unit: complex = 1.0) -> Array:
    """(m, n): the derivative of the flattened f along every element of x."""
    columns = []
    for k in range(x.size):
        direction = np.zeros(x.size, dtype=x.dtype)
        direction[k] = unit
        columns.append(along(f, x, direction.reshape(x.shape)).reshape(-1))
    return np.stack(columns, axis=1) if columns else np.zeros((np.size(f(x)), 0))
