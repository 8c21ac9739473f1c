"""From what the engine returns for whole Values to the columns that were asked for, and back."""

from __future__ import annotations

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.protocol import Array, Linear


def pull_columns(ask: Ask, linear: Linear, seeds: Array, rung: str) -> Array | None:
    """Rows of the Jacobian for these seeds, at the columns asked for: (k, n); None where nothing is reached.

    Sweeps are adjoints over the reals: <u, J t> = <pull(u), t> with the real inner product. Where y is complex this
    turns them into the complex derivative: over a complex x the conjugate of the adjoint, over a real x two passes.
    """
    arrays = ask.y.record.backend.arrays
    if not arrays.is_complex(ask.y):
        return asked(ask, linear.pull(seeds, rung), arrays.shape(seeds)[0])
    count = arrays.shape(seeds)[0]
    seeds = arrays.conjugate(seeds)  # the adjoint takes the conjugate of its seed; a row of u @ J does not
    first = asked(ask, linear.pull(seeds, rung), count)
    if first is None:
        return None
    if arrays.is_complex(ask.x.values[0]) and not ask.x.parts[0].component:
        return arrays.conjugate(first)
    second = asked(ask, linear.pull(arrays.times_i(seeds), rung), count)
    return first if second is None else arrays.complex(first, second)


def asked(ask: Ask, pulled: list[Array | None], count: int) -> Array | None:
    """The columns that were asked for, from what was pulled to whole Values."""
    arrays = ask.y.record.backend.arrays
    parts = ask.x.parts
    if all(g is None for g in pulled):
        return None
    if len(parts) == 1 and parts[0].into is None:
        return _picked(ask, 0, pulled[0], count)
    result = arrays.zeros((count, ask.n), ask.x.values[0])
    for k, part in enumerate(parts):
        columns = _picked(ask, k, pulled[k], count)
        if columns is not None:
            result = arrays.place(result, (slice(None), slice(None) if part.into is None else part.into), columns)
    return result


def _picked(ask: Ask, k: int, gradient: Array | None, count: int) -> Array | None:
    if gradient is None:
        return None
    arrays = ask.y.record.backend.arrays
    part = ask.x.parts[k]
    if part.component == "pairs":
        gradient = arrays.pairs(gradient)
    flat = arrays.reshape(gradient, (count, -1))
    return flat if part.elements.everything else arrays.take(flat, part.elements.positions, 1)


def tangents(ask: Ask, columns: Positions) -> list[Array | None]:
    """One-hot tangents for these columns of the question: one batch for each Value of x."""
    only = ask.x.parts[0]
    if len(ask.x.parts) == 1 and only.into is None and not only.component:
        return [ask.y.record.backend.arrays.one_hot(only.value, only.elements.positions[columns])]
    weights = np.zeros((len(columns), ask.n))
    weights[np.arange(len(columns)), columns] = 1.0
    return spread_tangents(ask, ask.y.record.backend.arrays.from_numpy(weights, ask.x.values[0]))


def spread_tangents(ask: Ask, weights: Array) -> list[Array | None]:
    """Tangents (k, n) of the question as tangents of the whole Values of x."""
    arrays = ask.y.record.backend.arrays
    batches: list[Array | None] = []
    for part in ask.x.parts:
        of_part = weights if part.into is None else arrays.take(weights, part.into, 1)
        if part.component == "pairs":
            batches.append(arrays.spread_pairs(part.value, part.elements.positions, of_part))
        elif part.elements.everything:
            count = arrays.shape(weights)[0]
            batches.append(arrays.reshape(arrays.cast(of_part, part.value), (count, *part.value.shape)))
        else:
            batches.append(arrays.spread(part.value, part.elements.positions, of_part))
    return batches
