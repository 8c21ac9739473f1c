"""Through one narrow tensor, in three calls of the engine: columns above it, rows below it, a plain pull of the probe."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import numpy as np

from wrt._core.ask import Ask
from wrt._core.protocol import Array, CannotBatch
from wrt._core.report import Certificate, Step
from wrt._core.value import Value
from wrt._planner.foresee import FEWEST
from wrt._run.at_once import ONE_BY_ONE, in_chunks, ordinary, trusted
from wrt._run.budget import LARGE, answer_bytes
from wrt._run.certify import signs, tolerance
from wrt._run.chunk import chunk_size
from wrt._run.tally import ALONE, BY_RULES, SETTING_UP


class Sides(NamedTuple):
    """J = last @ first, what a pull of its own says of a probe of J, and how it was pulled."""

    last: Array
    """(m, k)"""
    first: Array
    """(k, n)"""
    weights: Array
    """(m,), of the probe"""
    expected: Array
    """(n,)"""
    steps: list[Step]
    probe: str


def both_sides(ask: Ask, waist: Value) -> Sides | None:
    """All columns of y by a tensor on its way from x, all rows of that tensor by x.

    None where the tensor is not narrow, where a side does not go in one call, or where one is refused.
    """
    y, x, m, k = ask.y, ask.x.parts[0].value, ask.m, waist.size
    if not 1 < k < FEWEST or m <= k + 2 or k > ask.n or not ordinary(ask):
        return None
    if not (trusted(y) or trusted(waist, ask.x.values)):  # what led to the waist led to y
        return None
    if answer_bytes(ask) >= LARGE and k > chunk_size(ask):
        return None
    arrays: Any = y.record.backend.arrays  # of a backend that vouches for its batches, see `ordinary`
    above: Any = y.record.linear(y, (waist, x))
    below: Any = y.record.linear(waist, (x,))
    seeds, probe = arrays.identity(waist), arrays.weights(signs(m), y)
    started = time.perf_counter()
    try:
        pushed = above.push_at_once(seeds, probe.view(y.shape))
        between = time.perf_counter()
        first = None if pushed is None else in_chunks(waist, below, seeds, True)
    except CannotBatch:
        return None
    if pushed is None or pushed[1] is None or first is None:
        return None
    columns, expected = pushed  # (k, m), (n,)
    took = between - started, time.perf_counter() - between
    steps, how = _told(above, below, k, took)
    return Sides(arrays.transpose(columns), first, probe, expected, steps, how)


def held(ask: Ask, sides: Sides) -> Certificate | None:
    """The proof as NumPy tells it, where that sees the numbers: both sides of a waist are few.

    By roots of sums of squares: of what is off never less than its largest, of what was said never more, per number. None
    where that does not settle it.
    """
    arrays: Any = ask.y.record.backend.arrays
    numbers = arrays.at_hand(sides.last, sides.first, sides.weights, sides.expected)
    if numbers is None:
        return None
    last, first, weights, said = numbers
    with np.errstate(all="ignore"):
        off = weights @ last @ first - said  # (n,)
        residual, size = math.sqrt(np.vdot(off, off)), math.sqrt(np.vdot(said, said) / said.size)
    allowed = tolerance(ask)
    if not residual <= allowed * size < math.inf or not size:  # true for a NaN too
        return None
    return Certificate("probe", residual / size, allowed, finite=True, probe=sides.probe)


def _told(above: Any, below: Any, k: int, took: tuple[float, float]) -> tuple[list[Step], str]:
    """What ran, and how the probe was pulled."""
    rules, twice, *_ = above.push_rungs
    prepared = above.set_up
    proof = ("set-up of the push, and certificate", "kept differentiable") if prepared else ("certificate", above.proved_by)
    steps = [
        Step("columns", "push", twice if prepared else rules, k, 1, took[0]),
        Step(proof[0], "pull", proof[1], 1, 1),
        Step("rows", "pull", below.swept_by, k, 1, took[1]),
    ]
    return steps, SETTING_UP if prepared else ALONE if above.proved_by == ONE_BY_ONE else BY_RULES
