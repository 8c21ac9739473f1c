"""Proof by a random probe (Freivalds): the same combination of rows, once from the answer and once from the engine.

The engine's pass is a plain, unbatched pull, so a wrong batching rule, a dropped branch or a misplaced entry shows. It
proves agreement with the engine's own backward; finite differences are another question.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.protocol import Array, Linear, random_signs
from wrt._core.report import Certificate, Report, Step
from wrt._core.value import Value
from wrt._run.columns import pull_columns

SEED = 20_011
SLACK = 128  # roundings that each operation may leave
BASE = 32  # operations' worth of them that a single one is granted: logcumsumexp of numbers near 10,000 takes 23


def certify(ask: Ask, linear: Linear, answer: Array, report: Report) -> Certificate:
    """Compare a random combination of the answer's rows with one plain pull."""
    probe = probe_of(ask)
    expected = pull_columns(ask, linear, seed_of(ask, probe), linear.pull_rungs[-1])  # (1, n)
    report.steps.append(Step("certificate", "pull", linear.pull_rungs[-1], passes_per_row(ask), passes_per_row(ask)))
    return compare(ask, probe, answer, expected)


@lru_cache(maxsize=32)
def signs(m: int) -> npt.NDArray[np.float64]:
    """(1, m): the weights of the probe."""
    made = random_signs(1, m, SEED)
    made.setflags(write=False)
    return made


def probe_of(ask: Ask, like: Value | None = None) -> Array:
    """(1, m): the weights of the probe where y lives, or where another Value does; some backends keep them there."""
    arrays = ask.y.record.backend.arrays
    keep = getattr(arrays, "weights", arrays.from_numpy)
    return arrays.reshape(keep(signs(ask.m), ask.y if like is None else like), (1, ask.m))


def seed_of(ask: Ask, weights: Array) -> Array:
    """(k, m) weights of the rows that were asked for, as seeds of all of y."""
    arrays = ask.y.record.backend.arrays
    if ask.rows.everything:
        return arrays.reshape(weights, (arrays.shape(weights)[0], *ask.y.shape))
    return arrays.spread(ask.y, ask.rows.positions, weights)


def passes_per_row(ask: Ask) -> int:
    """A complex y over real x takes two real passes a row."""
    arrays = ask.y.record.backend.arrays
    two = arrays.is_complex(ask.y) and not (arrays.is_complex(ask.x.values[0]) and not ask.x.parts[0].component)
    return 2 if two else 1


def compare(ask: Ask, probe: Array, answer: Array, expected: Array | None) -> Certificate:
    """A probe of a whole answer next to what the engine says; `expected` None means that nothing was reached."""
    arrays = ask.y.record.backend.arrays
    probe = arrays.cast_like(probe, answer)
    got = arrays.matmul(probe, answer)  # (1, n) = (1, m) @ (m, n)
    plain = None if expected is None else settled(ask, got, expected)
    if plain is not None:
        return plain
    size = arrays.matmul(arrays.abs(probe), arrays.abs(answer))
    return verdict(ask, got, got * 0 if expected is None else expected, size)


def settled(ask: Ask, got: Array, expected: Array) -> Certificate | None:
    """Proof without a look at the size of what was summed: the difference is small next to what came out of it.

    None where that is not so, which says nothing yet. No weight of a probe is zero: an entry that is not finite would
    leave nothing finite of its column.
    """
    arrays = ask.y.record.backend.arrays
    expected = arrays.cast_like(expected, got)
    look = getattr(arrays, "at_hand", None)
    numbers = None if look is None else look(got, expected)
    with np.errstate(invalid="ignore"):
        if numbers is not None:  # NumPy is done with a few before torch has begun
            said, residual = float(abs(numbers[1]).max()), float(abs(numbers[0] - numbers[1]).max())
        else:
            said, residual = arrays.maxima(arrays.abs(expected), arrays.abs(got - expected))
    allowed = tolerance(ask)
    if not 0.0 < said < math.inf or not residual <= allowed * said:  # true for a NaN too
        return None
    return Certificate("probe", residual / said, allowed, finite=True)


def verdict(ask: Ask, got: Array, expected: Array, size: Array, outside: Array | None = None) -> Certificate:
    """The largest difference, relative to the size of what was summed; `outside` must be exactly zero.

    All numbers that are needed come from the device at once.
    """
    arrays = ask.y.record.backend.arrays
    expected = arrays.cast_like(expected, got)
    with np.errstate(invalid="ignore"):  # two infinities are looked at below
        off = arrays.abs(got - expected)
    more = () if outside is None else (arrays.abs(outside),)
    summed, said, residual, *stray = arrays.maxima(size, arrays.abs(expected), off, *more)
    if stray and stray[0] != 0:  # a NaN is not zero either
        return Certificate("probe", math.inf, tolerance(ask), "an entry outside the pattern is not zero")
    scale = max(summed, said)
    if 0.0 < scale < math.inf and residual < math.inf:  # false for a NaN too
        return Certificate("probe", residual / scale, tolerance(ask), finite=summed < math.inf)
    comparable = arrays.finite_only(got, expected, size)
    if comparable is None:
        return Certificate("probe", 0.0, math.inf, "no finite entry to compare")
    got, expected, size = comparable
    scale = max(arrays.largest(size), arrays.largest(arrays.abs(expected)))
    if scale == 0.0:
        return Certificate("probe", 0.0, tolerance(ask))
    return Certificate("probe", arrays.largest(arrays.abs(got - expected)) / scale, tolerance(ask))


def tolerance(ask: Ask, operations: int | None = None) -> float:
    """Roundoff that m summed rows and a pass through so many operations may leave; in double precision far below one
    wrong entry. Where nobody has counted those on the way, all that led to y are."""
    precision = ask.y.record.backend.arrays.precision
    epsilon = max([precision(ask.y), *[precision(part.value) for part in ask.x.parts]])
    if operations is None:
        count = getattr(ask.y.record, "operations", None)
        operations = 0 if count is None else int(count(ask.y))
    return min(0.3, epsilon * SLACK * (BASE + operations) * max(1.0, math.sqrt(ask.m) / 4))
