"""J @ v and u @ J: vectors of the user's in the shape of one side, or with one more axis for several of them."""

from __future__ import annotations

import math
from typing import Any

from wrt._core.ask import Ask
from wrt._core.protocol import Array
from wrt._core.report import Report
from wrt._run.linear_map import LinearMap
from wrt.errors import WrongShape


def left(ask: Ask, u: Any, report: Report) -> Array:
    """u @ J, one pull for each u: (*x.shape), or (k, *x.shape) for k of them."""
    arrays = ask.y.record.backend.arrays
    batch, weights = _vectors(ask, u, ask.rows.shape, "u", "y", lead=True)
    return arrays.reshape(LinearMap(ask, report).pull(weights), (*batch, *ask.x.shape))


def right(ask: Ask, v: Any, report: Report) -> Array:
    """J @ v, one push for each v: (*y.shape), or (*y.shape, k) for k of them."""
    arrays = ask.y.record.backend.arrays
    batch, columns = _vectors(ask, v, ask.x.shape, "v", "x", lead=False)
    return arrays.reshape(arrays.transpose(LinearMap(ask, report).push(columns)), (*ask.rows.shape, *batch))


def _vectors(
    ask: Ask, given: Any, shape: tuple[int, ...], letter: str, side: str, *, lead: bool
) -> tuple[tuple[int, ...], Array]:
    """The vector, or the batch of them, as (k, size); lead tells on which end the batch axis stands."""
    arrays = ask.y.record.backend.arrays
    native = arrays.native(given, ask.y if side == "y" else ask.x.values[0])
    got, size = arrays.shape(native), math.prod(shape)
    if got == shape:
        return (), arrays.reshape(native, (1, size))
    if len(got) == len(shape) + 1:
        if lead and got[1:] == shape:
            return (got[0],), arrays.reshape(native, (got[0], size))
        if not lead and got[:-1] == shape:
            return (got[-1],), arrays.transpose(arrays.reshape(native, (size, got[-1])))
    product = f"{letter} @ J" if lead else f"J @ {letter}"
    many = f"({', '.join(('k', *map(str, shape)))})" if lead else f"({', '.join((*map(str, shape), 'k'))})"
    raise WrongShape(
        f"{product}: {letter} has shape {got}",
        f"J maps {tuple(ask.x.shape)} to {tuple(ask.rows.shape)}",
        f"give {letter} the shape {shape} of {side}, or {many} for k of them",
    )
