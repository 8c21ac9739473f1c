"""Which elements meet in one operation, read off a few vectors that passed through it, or known from what it is.

Most operations of irregular programs (gathers, scatters, slices, sums, everything elementwise) touch each element of one
side once: pulled (or pushed) through such an operation, the numbers 1, 2, 3, ... come back as c_i times the number of
the one element that i meets, and ones come back as c_i. A vector of random numbers proves it. Matrix products have rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions, Shape
from wrt._core.thresholds import MOST_PAIRS, PAIR_TOLERANCE

Pairs = tuple[Positions, Positions]
"""Elements of the result, and the elements of an input that they meet."""

Vector = npt.NDArray[np.float64]


def vectors(size: int) -> tuple[Vector, Vector, Vector]:
    """Ones, 1 2 3 ..., and random numbers that prove what those say."""
    return np.ones(size), np.arange(1.0, size + 1), np.random.default_rng(5).uniform(1, 10, size)


def one_each(made: Sequence[Vector], size: int) -> Pairs | None:
    """(i, the one element of `size` it meets) for each i that meets one; None where some i meets several.

    >>> ones, numbers, random = vectors(3)
    >>> [found.tolist() for found in one_each([2 * ones[::-1], 2 * numbers[::-1], 2 * random[::-1]], 3)]
    [[0, 1, 2], [2, 1, 0]]
    """
    slope, numbered, random = made
    if not np.isfinite(slope).all():
        return None
    alive = np.flatnonzero(slope)
    told = numbered[alive] / slope[alive]
    partner = np.rint(told).astype(np.int64) - 1
    if len(partner) and (partner.min() < 0 or partner.max() >= size):
        return None
    expected = slope[alive] * vectors(size)[2][partner]
    silent = np.delete(random, alive)
    if np.any(np.abs(random[alive] - expected) > PAIR_TOLERANCE * np.abs(expected)) or np.any(silent != 0):
        return None
    return alive, partner


def told(met: Pairs, after: Shape, before: Shape) -> Pairs | tuple[()]:
    """() where whoever meets anybody meets itself: zeros are slopes that happen to be zero here."""
    return () if after == before and len(met[0]) and np.array_equal(*met) else met


def broadcast(after: Shape, before: Shape) -> Pairs:
    """Each element of the result meets the one that was repeated for it."""
    whom = np.broadcast_to(np.arange(int(np.prod(before))).reshape(before), after)
    return np.arange(int(np.prod(after))), whom.reshape(-1)


def product(batch: Shape, after: Shape, before: Shape, *, left: bool) -> Pairs | None:
    """out[b, i, j] of left[b, i, :] or of right[b, :, j]."""
    count = int(np.prod(batch))
    (p, q), (r, s) = after, before
    if count * p * q * (s if left else r) > MOST_PAIRS:
        return None
    b, i, j, inner = np.ogrid[:count, :p, :q, : (s if left else r)]
    rows = (b * p + i) * q + j
    columns = (b * r + i) * s + inner if left else (b * r + inner) * s + j
    shape = np.broadcast_shapes(rows.shape, columns.shape)
    return np.broadcast_to(rows, shape).reshape(-1), np.broadcast_to(columns, shape).reshape(-1)


def neighbors(size: int, width: int) -> Pairs | None:
    """Groups of `width` elements that lie side by side, each of which meets all others of its group."""
    if size * width > MOST_PAIRS:
        return None
    rows = np.arange(size)
    return np.repeat(rows, width), (rows[:, None] // width * width + np.arange(width)).reshape(-1)
