"""A whole Jacobian in one call of the engine: the identity and a probe in one batch, and one look at what comes back.

What a hand-written `vmap` costs is the measure here. The proof is the same as elsewhere, only cheaper to read: |u @ J - w|
is compared with a bound that is never larger than the sum `certify.verdict` divides by. Where that does not settle it
(an entry that is not finite, a doubtful residual), nothing is said here, and the sweep in `direct.py` looks closer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from wrt._core.ask import Ask
from wrt._core.pattern import Way
from wrt._core.protocol import Array, CannotBatch
from wrt._core.report import Certificate, Report, Step
from wrt._core.value import Value
from wrt._planner.strategies.direct import direct
from wrt._run.certify import signs, tolerance
from wrt._run.chunk import chunk_size, goes_whole
from wrt._run.options import DEFAULT, current
from wrt._run.tally import ALONE as ALONE
from wrt._run.tally import BY_RULES, IN_THE_BATCH, SETTING_UP

SMALLEST = 0.5
"""No weight of a probe is smaller, so the largest column sum of |u| |J| is at least this times ‖J‖ / sqrt(n)."""

MANY = 32  # rows from which on somebody looks how wide the tensors on the way are

FREE = 2**22
"""Numbers in a batch that a device handles while the next operation is still being started."""

ONE_BY_ONE = "one by one"  # the rung of the engine's own unbatched pull
FROM_WEIGHTS = "rows, starting as the weights of the last layer"


class AtOnce:
    """The answer, (m, n), and what is needed to tell how it came about, should somebody ask."""

    __slots__ = ("array", "ask", "from_weights", "joined", "proved_by", "residual", "rung", "seconds", "way")

    def __init__(self, ask: Ask, found: Found, residual: float, seconds: float, *, from_weights: bool) -> None:
        self.ask = ask
        self.way: Way = found.way
        self.from_weights = from_weights
        self.joined = found.joined
        self.rung = found.rung
        self.proved_by = found.proved_by
        self.array = found.array
        self.residual = residual
        self.seconds = seconds

    def report(self) -> Report:
        ask = self.ask
        plan = direct(ask.m, ask.n, can_push=self.way == "push")
        report = Report(plan.strategy, plan.because, notes=list(ask.x.notes))
        if self.from_weights:
            report.because = from_weights_because(ask)
            proof = "certificate, one more row of the batch" if self.joined else "certificate"
            report.steps = [
                Step(FROM_WEIGHTS, "pull", self.rung, ask.m, 1, self.seconds),
                Step(proof, "pull", self.rung if self.joined else "one by one", 1, 1),
            ]
        elif self.way == "pull":
            report.steps = [
                Step("rows", "pull", self.rung, ask.m, 1, self.seconds),
                Step("certificate, one more row of the batch", "pull", self.rung, 1, 0)
                if self.joined
                else Step("certificate", "pull", "one by one", 1, 1),
            ]
        elif self.joined:
            report.steps = [
                Step("columns", "push", self.rung, ask.n, 1, self.seconds),
                Step("set-up of the push", "pull", "kept differentiable", 1, 1),
            ]
        else:
            report.steps = [
                Step("columns", "push", self.rung, ask.n, 1, self.seconds),
                Step("certificate", "pull", self.proved_by, 1, 1),
            ]
        report.certificate = Certificate("probe", self.residual, tolerance(ask), finite=True, probe=self._probe)
        return report

    @property
    def _probe(self) -> str:
        if not self.joined:
            return ALONE if self.proved_by == ONE_BY_ONE else BY_RULES
        return SETTING_UP if self.way == "push" else IN_THE_BATCH


def from_weights_because(ask: Ask) -> str:
    return f"{ask.m} rows asked for, {ask.n} columns; y is a matrix times a tensor"


Batches = Literal["unknown", "proven", "trusted"]
"""What is known of batches of the operations on the way: nothing, that a plain pull agreed, or that all are in a table."""


def at_once(ask: Ask, *, batches: Batches, from_weights: bool = False) -> AtOnce | None:
    """All of an ordinary Jacobian, proven; None where more has to be looked at.

    `from_weights` begins with the rows of the last layer's matrix, where there is one. Where batches are unknown, the
    probe takes an unbatched pull; otherwise it travels in the batch.
    """
    y, x = ask.y, ask.x.parts[0].value
    if not ordinary(ask):
        return None
    m, n = math.prod(y.shape), math.prod(x.shape)
    if m < 2 or n < 1 or not _fits(ask, m, n):
        return None
    started = time.perf_counter()
    try:
        if from_weights:
            found = _rows_from_weights(y, x, m) if batches == "trusted" else None
        elif _by_rows(y, m, n):
            found = _rows_and_a_pull(y, x, m) if batches == "unknown" else _rows(y, x, m, batches)
        else:
            found = _columns(y, x, m)
    except CannotBatch:
        return None
    if found is None:
        return None
    bound = SMALLEST * found.size / math.sqrt(n)
    if not found.residual <= tolerance(ask) * bound < math.inf:  # false for a NaN too
        return None
    relative, seconds = found.residual / bound if found.residual else 0.0, time.perf_counter() - started
    return AtOnce(ask, found, relative, seconds, from_weights=from_weights)


class Found(NamedTuple):
    """A block, how far a probe of it is off, the size of its entries, and on which rung it was swept.

    `joined`: the probe took no pull of its own. It was one more row of the batch, or it set the push up. Otherwise
    `proved_by` is the rung of its pull.
    """

    array: Array
    residual: float
    size: float
    way: Way
    joined: bool
    rung: str
    proved_by: str = ONE_BY_ONE


class Rows(NamedTuple):
    """Rows that prove nothing by themselves: they are part of an answer that is proven as a whole."""

    array: Array
    step: Step


def all_rows(ask: Ask) -> Rows | None:
    """Every row, in one call and without a probe; None where more has to be looked at, as above."""
    if not ordinary(ask) or not trusted(ask.y, ask.x.values) or ask.m < 2 or ask.m > ask.n or not _fits(ask, ask.m, ask.n):
        return None
    started = time.perf_counter()
    arrays, linear = _engine(ask.y, ask.x.parts[0].value)
    try:
        block = in_chunks(ask.y, linear, arrays.identity(ask.y), True)
    except CannotBatch:
        return None
    if block is None:
        return None
    return Rows(block, Step("rows", "pull", linear.swept_by, ask.m, 1, time.perf_counter() - started))


def in_one_call(ask: Ask) -> bool:
    """Whether a direct sweep of everything goes this way."""
    return ordinary(ask) and ask.m > 1 and _fits(ask, ask.m, ask.n)


def ordinary(ask: Ask) -> bool:
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
    """Whether the shorter side goes in one call; a larger question is swept in chunks.

    A device is not asked for its free memory: that takes as long as ten operations, and where there is none the call is
    refused, and chunks are next.
    """
    return m * n <= 2**24 and (ask.accelerated or goes_whole(ask) or min(m, n) <= chunk_size(ask))


def _by_rows(y: Value, m: int, n: int) -> bool:
    """A device is kept waiting by a push, which starts three times as many operations; small rows cost it nothing.

    Elements picked by an index are another matter there: pulled back, they are sorted before they are summed.
    """
    arrays: Any = y.record.backend.arrays
    if not arrays.accelerated(y):
        return m <= n + 2
    record: Any = y.record
    return (m <= n + 2 or few_enough(m, n)) and not (n <= m and record.sorts(y))


def few_enough(m: int, n: int) -> bool:
    """Whether a device pulls all rows while the next operation is still being started."""
    return m * max(m, n) <= FREE


def trusted(y: Value, xs: Sequence[Value] = ()) -> bool:
    """Whether the backend vouches for the batches of all operations that led to y, or at least of those from xs on."""
    vouch = getattr(y.record, "trusted", None)
    return vouch is not None and bool(vouch(y, xs))


def _engine(y: Value, x: Value) -> tuple[Any, Any]:
    """Arrays and linear map of a backend that vouches for its batches: it offers more than every backend has to."""
    return y.record.backend.arrays, y.record.linear(y, (x,))


def _rows(y: Value, x: Value, m: int, batches: Batches) -> Found | None:
    """Every row and the probe in one batch: (m + 1, n)."""
    arrays, linear = _engine(y, x)
    block = in_chunks(y, linear, arrays.identity(y, signs(m)), batches == "trusted")
    if block is None:
        return None
    residual, size = arrays.probed(signs(m), y, block)
    return Found(block[:m], residual, size, "pull", True, linear.swept_by)


def _rows_and_a_pull(y: Value, x: Value, m: int) -> Found | None:
    """Every row in one batch, (m, n), next to one unbatched pull of the probe."""
    arrays, linear = _engine(y, x)
    block = in_chunks(y, linear, arrays.identity(y), False)
    return None if block is None else _beside_a_pull(y, linear, block, m, linear.swept_by)


def _beside_a_pull(y: Value, linear: Any, block: Array, m: int, rung: str) -> Found:
    arrays: Any = y.record.backend.arrays
    probe = arrays.weights(signs(m), y)
    (expected,) = linear.pull_alone(probe.view(y.shape))
    residual, size = arrays.agreement(probe, arrays.transpose(block), expected.reshape(-1))
    return Found(block, residual, size, "pull", False, rung)


def in_chunks(y: Value, linear: Any, seeds: Array, trusted: bool) -> Array | None:
    """All seeds in one batch, or in a few where a tensor on the way is so wide that it would leave the cache."""
    record: Any = y.record
    rows = seeds.shape[0]
    most = rows if rows < MANY else record.rows_at_once(y)
    if most >= rows:
        return linear.pull_at_once(seeds, trusted)
    calls = -(-rows // most)
    size = -(-rows // calls)
    blocks = [linear.pull_at_once(seeds[start : start + size], trusted) for start in range(0, rows, size)]
    return None if blocks[0] is None else y.record.backend.arrays.concat(blocks, 0)


def _rows_from_weights(y: Value, x: Value, m: int) -> Found | None:
    """The rows of the last layer's matrix, and the probe as the engine pulls it through that layer: (m + 1, n).

    On a device the probe goes all the way alone: the host is at it while the device is busy with the rows.
    """
    record: Any = y.record
    started = record.weights(y, (x,))
    if started is None:
        return None
    value, rows = started  # (m, *value.shape)
    arrays, last = _engine(y, value)
    inner = record.linear(value, (x,))
    if arrays.accelerated(y):
        block = inner.pull_at_once(rows, True)
        return None if block is None else _beside_a_pull(y, record.linear(y, (x,)), block, m, inner.swept_by)
    probe = arrays.weights(signs(m), y)
    (pulled,) = last.pull_alone(probe.view(y.shape))
    block = inner.pull_at_once(arrays.concat([rows, pulled[None]], 0), True, spent=True)
    if block is None:
        return None
    residual, size = arrays.probed(signs(m), y, block)
    return Found(block[:m], residual, size, "pull", True, inner.swept_by)


def _columns(y: Value, x: Value, m: int) -> Found | None:
    """Every column in one batch, (n, m), next to the pull that set it up."""
    arrays, linear = _engine(y, x)
    probe = arrays.weights(signs(m), y)
    found = linear.push_at_once(arrays.identity(x), probe.view(y.shape))
    if found is None or found[1] is None:
        return None
    block, expected = found  # (n, m), (n,)
    residual, size = arrays.agreement(probe, block, expected)
    rung = linear.push_rungs[1 if linear.set_up else 0]
    return Found(arrays.transpose(block), residual, size, "push", linear.set_up, rung, linear.proved_by)
