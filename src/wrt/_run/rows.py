"""The entries of a compressed plan row by row: scipy's own order, made once for all answers of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.plan import Compressed
from wrt._core.protocol import Array

if TYPE_CHECKING:
    from scipy.sparse import csr_array

KEEP = 2**26  # bytes of seeds and indices that a warm plan may hold

Numbers = npt.NDArray[Any]


def by_rows(plan: Compressed) -> tuple[Positions, csr_array]:
    """Where each entry of the pattern stands in the flat passes, row by row, and the pattern itself."""
    if "rows" not in plan.kept:
        from scipy.sparse import coo_array

        slots, places = plan.compression.flat
        shape = plan.compression.shape
        index = np.int32 if max(*shape, len(slots)) < 2**31 else np.int64  # as scipy's solvers take it, without a copy
        found = coo_array((slots, [each.astype(index) for each in np.divmod(places, shape[1])]), shape=shape).tocsr()
        found.sort_indices()
        plan.kept["rows"] = found.data, found
    order, whole = plan.kept["rows"]
    return order, whole


def filled(plan: Compressed, flat: Numbers) -> csr_array:
    """The entries of these passes, without those that are zero; which ones are is often the same as last time."""
    known = plan.kept.get("alive")
    if known is None:
        order, whole = by_rows(plan)
        known = plan.kept["alive"] = order, order[:0], whole
    alive, dead, pattern = known
    values = flat.take(alive)
    if np.logical_and.reduce(values) and not (len(dead) and np.logical_or.reduce(flat.take(dead))):
        return like(pattern, values)
    order, whole = by_rows(plan)
    values = flat.take(order)
    there = values != 0
    thinner = thinned(whole, there)
    if order.nbytes < KEEP:
        plan.kept["alive"] = order[there], order[~there], thinner
    return like(thinner, values[there])


def filled_there(plan: Compressed, ask: Ask, flat: Array) -> csr_array | None:
    """The same of many numbers on a device, which picks the entries: they alone travel, in the order in which they stay.

    None where other entries than last time are zero, and where picking them would take much memory.
    """
    order, whole = by_rows(plan)
    alive, _, pattern = plan.kept.get("alive", (order, None, whole))
    if alive.nbytes >= KEEP:
        return None
    arrays: Any = ask.y.record.backend.arrays
    picks, index = plan.kept.get("alive there", (None, None))
    if picks is not alive:
        index = arrays.index(alive, ask.x.values[0])
        plan.kept["alive there"] = alive, index
    values = arrays.picked(flat, index)
    return None if values is None else like(pattern, values)


def thinned(pattern: csr_array, there: npt.NDArray[np.bool_]) -> csr_array:
    """The pattern without the entries that are not there."""
    found = like(pattern, there.copy())
    found.eliminate_zeros()
    return found


def like(pattern: csr_array, values: Numbers) -> csr_array:
    """A matrix of this pattern, in memory of its own; scipy would look through all of it once more."""
    made = object.__new__(type(pattern))
    made.__dict__.update(pattern.__dict__)
    made.data, made.indices, made.indptr = values, pattern.indices.copy(), pattern.indptr.copy()
    return made
