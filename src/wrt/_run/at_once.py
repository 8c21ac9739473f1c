"""A whole Jacobian in one call of the engine: the identity and a probe in one batch, and one look at what comes back.

What a hand-written `vmap` costs is the measure here. The proof is the same as elsewhere, only cheaper to read: |u @ J - w|
is compared with a bound that is never larger than the sum `certify.verdict` divides by. Where that does not settle it
(an entry that is not finite, a doubtful residual), nothing is said here, and the sweep in `direct.py` looks closer.
"""

from __future__ import annotations

import math
import time
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.pattern import Way
from wrt._core.protocol import Array, CannotBatch
from wrt._core.report import Certificate, Report, Step
from wrt._core.value import Value
from wrt._planner.strategies.direct import direct
from wrt._run.certify import signs, tolerance
from wrt._run.chunk import chunk_size
from wrt._run.options import DEFAULT, current

SMALLEST = 0.5
"""No weight of a probe is smaller, so the largest column sum of |u| |J| is at least this times ‖J‖ / sqrt(n)."""

FROM_WEIGHTS = "rows, starting as the weights of the last layer"
IN_THE_BATCH = "as one more row of a batch of proven operations"
SETTING_UP = "by the unbatched pull that sets the push up"


class AtOnce:
    """The answer, (m, n), and what is needed to tell how it came about, should somebody ask."""

    __slots__ = ("array", "ask", "from_weights", "residual", "seconds", "way")

    def __init__(
        self, ask: Ask, way: Way, array: Array, residual: float, seconds: float, *, from_weights: bool = False
    ) -> None:
        self.ask = ask
        self.way = way
        self.from_weights = from_weights
        self.array = array
        self.residual = residual
        self.seconds = seconds

    def report(self) -> Report:
        ask = self.ask
        plan = direct(ask.m, ask.n)
        report = Report(plan.strategy, plan.because, notes=list(ask.x.notes))
        if self.from_weights:
            report.because = from_weights_because(ask)
            report.steps = [
                Step(FROM_WEIGHTS, "pull", "vmap", ask.m, 1, self.seconds),
                Step("certificate, one more row of the batch", "pull", "vmap", 1, 1),
            ]
        elif self.way == "pull":
            report.steps = [
                Step("rows", "pull", "vmap", ask.m, 1, self.seconds),
                Step("certificate, one more row of the batch", "pull", "vmap", 1, 0),
            ]
        else:
            report.steps = [
                Step("columns", "push", "double backward", ask.n, 1, self.seconds),
                Step("set-up of the push, and certificate", "pull", "kept differentiable", 1, 1),
            ]
        probe = IN_THE_BATCH if self.way == "pull" else SETTING_UP
        report.certificate = Certificate("probe", self.residual, tolerance(ask), finite=True, probe=probe)
        return report


def from_weights_because(ask: Ask) -> str:
    return f"{ask.m} rows asked for, {ask.n} columns; y is a matrix times a tensor"


def at_once(ask: Ask, *, from_weights: bool = False) -> AtOnce | None:
    """All of an ordinary Jacobian, proven; None where more has to be looked at.

    `from_weights` begins with the rows of the last layer's matrix, where there is one.
    """
    y, x = ask.y, ask.x.parts[0].value
    if not _ordinary(ask):
        return None
    m, n = math.prod(y.shape), math.prod(x.shape)
    if m < 2 or n < 1 or not _fits(ask, m, n) or not _trusted(y):
        return None
    started = time.perf_counter()
    try:
        if from_weights:
            found = _rows_from_weights(y, x, m)
        else:
            found = _rows(y, x, m) if m <= n + 2 else _columns(y, x, m)
    except CannotBatch:
        return None
    if found is None:
        return None
    array, residual, size, way = found
    bound = SMALLEST * size / math.sqrt(n)
    if not residual <= tolerance(ask) * bound < math.inf:  # false for a NaN too
        return None
    relative, seconds = residual / bound if residual else 0.0, time.perf_counter() - started
    return AtOnce(ask, way, array, relative, seconds, from_weights=from_weights)


def _ordinary(ask: Ask) -> bool:
    """All of one tensor by all of another, in the same real numbers, with settings as they are by themselves."""
    y, rows, part, record = ask.y, ask.rows, ask.x.parts[0], ask.y.record
    x, columns = part.value, part.elements
    if not hasattr(record, "trusted") or len(ask.x.parts) > 1 or part.into is not None or part.component:
        return False
    if y.dtype is not x.dtype or record.backend.arrays.is_complex(y) or current() is not DEFAULT:
        return False
    if not (record.has_history(y) and record.has_history(x)) or record.same(y, x):
        return False
    return (rows.shape is rows.of or rows.everything) and (columns.shape is columns.of or columns.everything)


def _fits(ask: Ask, m: int, n: int) -> bool:
    """Whether the shorter side goes in one call; a larger question is swept in chunks."""
    return min(m, n) + 1 <= chunk_size(ask) + 1 and m * n <= 2**24


def _trusted(y: Value) -> bool:
    record: Any = y.record
    return bool(record.trusted(y))


def _engine(y: Value, x: Value) -> tuple[Any, Any]:
    """Arrays and linear map of a backend that vouches for its batches: it offers more than every backend has to."""
    return y.record.backend.arrays, y.record.linear(y, (x,))


def _rows(y: Value, x: Value, m: int) -> tuple[Array, float, float, Way] | None:
    """Every row and the probe in one batch: (m + 1, n)."""
    arrays, linear = _engine(y, x)
    block = linear.pull_at_once(arrays.identity(y, signs(m)))
    if block is None:
        return None
    residual, size = arrays.agreement(arrays.weights(balance(m), y), block, None)
    return block[:m], residual, size, "pull"


def _rows_from_weights(y: Value, x: Value, m: int) -> tuple[Array, float, float, Way] | None:
    """The rows of the last layer's matrix, and the probe as the engine pulls it through that layer: (m + 1, n)."""
    record: Any = y.record
    started = record.weights(y, (x,))
    if started is None:
        return None
    value, rows = started  # (m, *value.shape)
    arrays, last = _engine(y, value)
    probe = arrays.weights(signs(m), y)
    (pulled,) = last.pull(probe.view(1, *y.shape), last.pull_rungs[-1])
    block = record.linear(value, (x,)).pull_at_once(arrays.concat([rows, pulled], 0))
    if block is None:
        return None
    residual, size = arrays.agreement(arrays.weights(balance(m), y), block, None)
    return block[:m], residual, size, "pull"


def _columns(y: Value, x: Value, m: int) -> tuple[Array, float, float, Way] | None:
    """Every column in one batch, (n, m), next to the pull that set it up."""
    arrays, linear = _engine(y, x)
    probe = arrays.weights(signs(m), y)
    found = linear.push_at_once(arrays.identity(x), probe.view(y.shape))
    if found is None:
        return None
    block, expected = found
    block = arrays.transpose(block)
    residual, size = arrays.agreement(probe, block, expected)
    return block, residual, size, "push"


@lru_cache(maxsize=32)
def balance(m: int) -> npt.NDArray[np.float64]:
    """(1, m + 1): the probe, less what the engine said of it."""
    made = np.append(signs(m), [[-1.0]], axis=1)
    made.setflags(write=False)
    return made
