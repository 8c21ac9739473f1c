"""The one proof (Freivalds): the array that is handed out, times random weights, next to one independent backward pass.

The other side is a plain, unbatched pull by the framework's own engine, so a wrong batching rule, a dropped branch, a stale
pattern, a misplaced entry or a spoiled product shows. Every column is held to its own size: off by at most 32 roundings of
its 2-norm, and 4 of the largest column's; nothing grows with the number of rows. It proves agreement with the engine's own
backward; finite differences are another question (`J.check()`).

Doubt costs passes, never truth: a doubtful column is swept alone, and a few plain rows decide where that does not settle
it. What is still in doubt is answered by the next plan, the last of which is plain rows throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions
from wrt._core.protocol import Array, CannotSweep, Numbers
from wrt._core.report import Certificate
from wrt._run.forms import Dense, Form
from wrt._run.sweep import Sweeper
from wrt._run.thresholds import (
    CANCELLATION_HALF,
    DOUBTFUL_COLUMNS,
    FLOOR_ROUNDINGS,
    HALF_PRECISION,
    OWN_ROUNDINGS,
    OWN_ROUNDINGS_HALF,
    SETTLING_ROWS,
)  # fmt: skip

SEED = 20_011
ENGINE = Certificate("engine")
SWITCHED_OFF = Certificate("none")


@lru_cache(maxsize=32)
def weights_of(count: int) -> npt.NDArray[np.float64]:
    """The weights of so many rows, always the same: ±[0.5, 1], drawn continuously, since two equal ones would hide a swap."""
    generator = np.random.default_rng(SEED)
    made = generator.choice([-1.0, 1.0], count) * generator.uniform(0.5, 1.0, count)
    made.setflags(write=False)
    return made


@dataclass(slots=True)
class Verdict:
    """What a comparison gave: the certificate, the columns that are off by more than they may, and what they may be off by."""

    certificate: Certificate
    doubtful: Positions
    allowed: Numbers
    finite: bool
    """Whether every entry is finite: no weight is zero, so one that is not would show."""


class Proof:
    """The independent pass of one question, made once, and every answer that is held to it."""

    __slots__ = ("_expected", "_weights", "precision", "sweeper")

    def __init__(self, sweeper: Sweeper) -> None:
        self.sweeper = sweeper
        ask, precision = sweeper.ask, sweeper.arrays.precision
        self.precision = precision(ask.y)
        for part in ask.x.parts:
            if part.value.dtype is not ask.y.dtype:
                self.precision = max(self.precision, precision(part.value))
        self._expected: Numbers | None = None
        self._weights: Numbers | None = None

    def pull(self, *, then_push: bool = False) -> bool:
        """Make the independent pass; False where no path leads to x. Where pushes follow it may set them up."""
        if self._expected is None:
            sweeper, ask = self.sweeper, self.sweeper.ask
            weights = sweeper.arrays.from_numpy(weights_of(ask.m)[None], ask.y)
            found = sweeper.plain(weights, "independent check", then_push=then_push)
            if found is None:
                return False
            self._weights = wide(sweeper.arrays.numpy(weights))[0]  # as y's type has rounded them
            self._expected = wide(sweeper.arrays.numpy(found))[0]
        return True

    @property
    def pass_made(self) -> tuple[Numbers, Numbers]:
        """The weights of the rows, (m,), and what the independent pass gave for them, (n,)."""
        assert self._weights is not None
        assert self._expected is not None
        return self._weights, self._expected

    def judge(self, form: Form) -> Verdict:
        """Hold what is handed out to the independent pass."""
        if self._expected is None:
            self.pull()
        if self._expected is None or self._weights is None:  # no path: whatever is not zero is wrong
            self._weights, self._expected = weights_of(self.sweeper.ask.m), np.zeros(self.sweeper.ask.n)
        return compare(*form.weighted_columns(self._weights), self._expected, self.precision)

    def settle(self, form: Form, verdict: Verdict) -> tuple[Form, Certificate] | None:
        """The answer with its doubtful columns settled one by one; None where the next plan has to answer."""
        ask, arrays, doubtful = self.sweeper.ask, self.sweeper.arrays, verdict.doubtful
        if not 0 < len(doubtful) <= DOUBTFUL_COLUMNS or len(doubtful) > max(1, ask.n // 4) or not verdict.finite:
            return None
        weights, expected = self.pass_made
        array, words = form.dense(), []
        mine = wide(arrays.numpy(arrays.take(array, doubtful, 1)))  # (m, k)
        holds = np.zeros(len(doubtful), dtype=bool)
        alone = self._columns_alone(doubtful)
        rest = np.delete(np.arange(ask.n), doubtful)
        sums = form.weighted_columns(weights)
        if alone is not None:
            theirs = wide(arrays.numpy(alone)).T
            size = np.linalg.norm(theirs, axis=0)  # not that of what may be spoiled
            largest = max(float(size.max()), float(sums[1][rest].max(initial=0.0)))
            allowed = self.precision * (self._own_roundings * size + FLOOR_ROUNDINGS * largest)
            holds = np.abs(weights @ theirs - expected[doubtful]) <= allowed
            if self.precision > HALF_PRECISION and not (np.linalg.norm(mine - theirs, axis=0) <= allowed)[holds].all():
                return None  # a fault, not a rounding: in other columns it may be too small to show in half precision
        if holds.any():  # alone they agree with the independent pass: they are the answer
            column = arrays.transpose(arrays.take(alone, np.flatnonzero(holds), 0))
            array = arrays.place(array, (slice(None), doubtful[holds]), column)
            words.append(f"{_columns(doubtful[holds])} swept alone")
        if not holds.all():  # where much larger numbers cancel, the independent pass itself is off by more than is allowed
            if not self._rows_agree(mine[:, ~holds], doubtful[~holds]):
                return None
            words.append(f"{_columns(doubtful[~holds])} agreed with plain rows")
        held = compare(*_picked(sums, rest), expected[rest], self.precision).certificate
        if not held.passed:
            return None
        return Dense(ask, array), Certificate("probe", held.share, held.difference, held.resolution, "; ".join(words))

    def repeat(self, form: Form, verdict: Verdict) -> Certificate:
        """The evidence for plain rows that the independent pass does not bear out: the engine says the same twice, or not.

        What terms that cancel do not explain is no rounding: of a backward that is not linear nothing can be said.
        """
        weights, expected = self.pass_made
        sums, sizes = form.weighted_columns(weights)
        most = CANCELLATION_HALF if self.precision > HALF_PRECISION else math.sqrt(self.precision)
        if not verdict.finite or not (np.abs(sums - expected) <= most * sizes.max()).all():
            return verdict.certificate
        some = verdict.doubtful[:DOUBTFUL_COLUMNS]
        if not self._rows_agree(wide(self.sweeper.arrays.numpy(self.sweeper.arrays.take(form.dense(), some, 1))), some):
            return verdict.certificate
        off = f"{verdict.certificate.difference:.1g} of {_columns(verdict.doubtful)}"
        return Certificate("engine", words=f"plain passes of the engine, the same when repeated; sums of rows round by {off}")

    @property
    def _own_roundings(self) -> int:
        return own_roundings(self.precision)

    def _columns_alone(self, columns: Positions) -> Array | None:
        """(k, m), each by a push of its own; None where nothing can be pushed."""
        if not self.sweeper.engine.can_push:
            return None
        try:
            return self.sweeper.push_columns(columns, "doubtful columns", batched=False)
        except CannotSweep:
            return None

    def _rows_agree(self, mine: Numbers, columns: Positions) -> bool:
        """Whether a few plain rows say the same: those with the largest entries of the doubtful columns, and the worst.

        Every entry is held to its own size: a fault that is spread over many rows is small next to their column.
        """
        largest = np.argsort(-np.abs(mine), axis=0)[:SETTLING_ROWS]
        allowed = self.precision * (self._own_roundings * np.abs(mine) + FLOOR_ROUNDINGS * np.abs(mine).max(axis=0))
        for row in np.unique([*largest.ravel(), *self._worst_rows(mine, columns)]).tolist():
            plain = self.sweeper.row(row, "doubtful rows")
            if plain is None:
                return False
            said = wide(self.sweeper.arrays.numpy(plain))[0, columns]
            if not (np.abs(said - mine[row]) <= allowed[row]).all():
                return False
        return True

    def _worst_rows(self, mine: Numbers, columns: Positions) -> list[int]:
        """For each doubtful column the row where it is off most, as far as halving leads there: a plain pass for each half.

        What is off in one place would hide from rows that are chosen by their size.
        """
        weights, expected = self.pass_made
        halves: dict[tuple[int, int], Numbers] = {}
        found: list[int] = []
        for numbers, column in zip(mine.T, columns.tolist(), strict=True):
            start, stop, off = 0, len(weights), weights @ numbers - expected[column]
            while stop - start > 1:
                middle = (start + stop) // 2
                if (start, middle) not in halves:
                    halves[start, middle] = self._some_rows(start, middle)
                first = weights[start:middle] @ numbers[start:middle] - halves[start, middle][column]
                if abs(first) >= abs(off - first):
                    stop, off = middle, first
                else:
                    start, off = middle, off - first
            found.append(start)
        return found

    def _some_rows(self, start: int, stop: int) -> Numbers:
        """The independent pass of these rows alone, (n,)."""
        ask, arrays = self.sweeper.ask, self.sweeper.arrays
        weights = np.zeros((1, ask.m))
        weights[0, start:stop] = self.pass_made[0][start:stop]
        found = self.sweeper.plain(arrays.from_numpy(weights, ask.y), "doubtful rows")
        return np.zeros(ask.n) if found is None else wide(arrays.numpy(found))[0]


def own_roundings(precision: float) -> int:
    return OWN_ROUNDINGS_HALF if precision > HALF_PRECISION else OWN_ROUNDINGS


def compare(got: Numbers, size: Numbers, expected: Numbers, precision: float, noise: Any = 0.0) -> Verdict:
    """Each column of an answer next to what the independent pass says of it.

    `got` are the weighted sums of the columns, `size` their 2-norms, `noise` roundings that the other side brings itself.
    """
    own = OWN_ROUNDINGS_HALF if precision > HALF_PRECISION else OWN_ROUNDINGS
    with np.errstate(all="ignore"):
        off = np.abs(got - expected)
        largest = float(size.max(initial=0.0))
        if not math.isfinite(largest + float(off.sum())):
            return _compare_finite(off, size, expected, precision, noise)
        allowed = precision * (own * size + FLOOR_ROUNDINGS * largest) + noise
        allowed[size == 0] = 0.0  # zeros with a nonzero probe always fail
        fails = off > allowed
    share, difference = _worst(off, size, allowed)
    resolution = precision * (own + FLOOR_ROUNDINGS)
    return Verdict(Certificate("probe", share, difference, resolution), np.flatnonzero(fails), allowed, True)


def _compare_finite(off: Numbers, size: Numbers, expected: Numbers, precision: float, noise: Any) -> Verdict:
    """The same where some numbers are not finite: those columns cannot be compared, and the certificate says so.

    No weight is zero: a column that is not finite, where the independent pass is, is wrong.
    """
    there = np.isfinite(off) & np.isfinite(size)
    finite = bool(np.isfinite(size).all())
    wrong = np.isfinite(expected) & ~there
    if wrong.any():
        certificate = Certificate("probe", math.inf, math.inf, words=f"{int(wrong.sum())} of {len(off)} columns are not finite")
        return Verdict(certificate, np.flatnonzero(wrong), np.zeros(len(off)), finite)
    if not there.any():
        words = "no finite entry to compare"
        return Verdict(Certificate("probe", words=words, compared=False), np.zeros(0, np.int64), np.zeros(len(off)), finite)
    found = compare(off[there], size[there], np.zeros(int(there.sum())), precision, _some(noise, there))
    left_out = len(off) - int(there.sum())
    words = f"{left_out} of {len(off)} columns are not finite and were not compared"
    held = found.certificate
    allowed = np.zeros(len(off))
    allowed[there] = found.allowed
    certificate = Certificate("probe", held.share, held.difference, held.resolution, words)
    return Verdict(certificate, np.flatnonzero(there)[found.doubtful], allowed, finite)


def _worst(off: Numbers, size: Numbers, allowed: Numbers) -> tuple[float, float]:
    """The largest share of what is allowed, and the largest difference next to the size of its column."""
    if not len(off) or not off.any():
        return 0.0, 0.0
    with np.errstate(all="ignore"):
        shares = np.where(off == 0, 0.0, off / allowed)
        return float(shares.max()), float(np.where(off == 0, 0.0, off / size).max())


def wide(numbers: Numbers) -> Numbers:
    """In double precision."""
    return numbers.astype(np.complex128 if numbers.dtype.kind == "c" else np.float64)


def _some(noise: Any, there: Numbers) -> Any:
    return noise[there] if isinstance(noise, np.ndarray) else noise


def _picked(found: tuple[Numbers, Numbers], columns: Positions) -> tuple[Numbers, Numbers]:
    return found[0][columns], found[1][columns]


def _columns(doubtful: Positions) -> str:
    named = ", ".join(map(str, doubtful[:4].tolist())) + (", ..." if len(doubtful) > 4 else "")
    return f"{len(doubtful)} columns ({named})" if len(doubtful) > 1 else f"column {named}"
