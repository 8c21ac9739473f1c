"""The one proof (Freivalds): the array that is handed out, times random weights, next to one independent backward pass.

The other side is a plain, unbatched pull by the framework's own engine, so a wrong batching rule, a dropped branch, a stale
pattern, a misplaced entry or a spoiled product shows. Every column is held to its own size: off by at most 32 roundings of
its 2-norm, and 4 of the largest column's; nothing grows with the number of rows. It proves agreement with the engine's own
backward; finite differences are another question (`J.check()`).

Doubt costs passes, never truth: how much the independent pass itself rounds is measured, a doubtful column is swept alone,
and what is still in doubt is answered by the next plan. The last one is plain rows one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.protocol import Array, CannotSweep, Numbers
from wrt._core.report import Certificate
from wrt._run.forms import Dense, Form
from wrt._run.sweep import Sweeper
from wrt._run.thresholds import (
    DOUBTFUL_COLUMNS,
    FLOOR_ROUNDINGS,
    HALF_PRECISION,
    HOPELESS_HALF,
    NOISE_MARGIN,
    NOISE_SPLITS,
    OWN_ROUNDINGS,
    OWN_ROUNDINGS_HALF,
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


def weights_in(ask: Ask) -> tuple[Array, Numbers]:
    """The weights as seeds, (1, m), and as y's type has them: read before a hook can write into the seeds."""
    arrays, weights = ask.y.record.backend.arrays, weights_of(ask.m)
    size = arrays.itemsize(ask.y)
    if size < np.dtype(np.float32).itemsize or ask.complex_y:
        seeds = arrays.from_numpy(weights[None], ask.y)
        return seeds, wide(arrays.numpy(seeds))[0]
    rounded = weights.astype(np.float32 if size == np.dtype(np.float32).itemsize else np.float64)
    return arrays.from_numpy(rounded[None], ask.y), wide(rounded)


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
            seeds, rounded = weights_in(ask)
            found = sweeper.plain(seeds, "independent check", then_push=then_push)
            if found is None:
                return False
            self._weights, self._expected = rounded, wide(sweeper.arrays.numpy(found))[0]
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
        """A second look at doubtful columns; None where the next plan has to answer.

        Where terms cancel, the weighted sum of rows rounds by more than the rows do. By how much is measured on the
        independent pass itself: its weights in two parts, and the sum of both passes next to the one. What is still in doubt
        is swept alone, and has to agree with the independent pass then.
        """
        ask, arrays, precision = self.sweeper.ask, self.sweeper.arrays, self.precision
        if not verdict.finite:
            return None
        weights, expected = self.pass_made
        sums, noise = form.weighted_columns(weights), np.zeros(ask.n)
        if may_round(np.abs(sums[0] - expected), sums[1], precision):
            measured = NOISE_MARGIN * self._noise()
            if may_round(measured, sums[1], precision):  # more than that is a backward that is not linear
                noise = np.where(sums[1] > 0, measured, 0.0)  # zeros with a nonzero probe always fail
                verdict = compare(*sums, expected, precision, noise)
                held = verdict.certificate
                if held.passed:
                    words = f"as far as it can tell: sums of rows round by {held.difference:.1g} of a column here"
                    return form, Certificate("probe", held.share, held.difference, held.resolution, words)
        doubtful = verdict.doubtful
        alone = self._columns_alone(doubtful) if len(doubtful) <= min(DOUBTFUL_COLUMNS, max(1, ask.n // 4)) else None
        if alone is None:
            return None
        theirs = wide(arrays.numpy(alone)).T  # (m, k)
        size, rest = np.linalg.norm(theirs, axis=0), np.delete(np.arange(ask.n), doubtful)
        largest = float(sums[1][rest].max(initial=float(size.max())))
        allowed = precision * (own_roundings(precision) * size + FLOOR_ROUNDINGS * largest) + noise[doubtful]
        if not (np.abs(weights @ theirs - expected[doubtful]) <= allowed).all():
            return None  # a push that is wrong by itself would say the same twice
        array = form.dense()
        if precision > HALF_PRECISION:
            mine = wide(arrays.numpy(arrays.take(array, doubtful, 1)))
            if not (np.linalg.norm(mine - theirs, axis=0) <= allowed).all():
                return None  # a fault, not a rounding: others of it may be too small to show in half precision
        held = compare(*_picked(sums, rest), expected[rest], precision, noise[rest]).certificate
        if not held.passed:
            return None
        array = arrays.place(array, (slice(None), doubtful), arrays.transpose(alone))
        words = f"{_columns(doubtful)} swept alone"
        return Dense(ask, array), Certificate("probe", held.share, held.difference, held.resolution, words)

    def plain_rows(self, form: Form, verdict: Verdict) -> Certificate:
        """The evidence for rows one by one, where the independent pass does not bear them out."""
        weights, expected = self.pass_made
        return of_plain_rows(*form.weighted_columns(weights), expected, verdict.certificate, self.precision)

    def _noise(self) -> Numbers:
        """(n,): by how much the independent pass rounds at each column, as the passes of two parts of its weights tell."""
        sweeper, (weights, expected) = self.sweeper, self.pass_made
        noise = np.zeros(len(expected))
        generator = np.random.default_rng(SEED + 3)
        for _ in range(NOISE_SPLITS):
            part, parts = generator.random(len(weights)) < 0.5, np.zeros_like(expected)
            for chosen in (part, ~part):
                found = sweeper.plain(sweeper.arrays.from_numpy((weights * chosen)[None], sweeper.ask.y), "how much it rounds")
                parts = parts if found is None else parts + wide(sweeper.arrays.numpy(found))[0]
            noise = np.fmax(noise, np.abs(parts - expected))
        return noise

    def _columns_alone(self, columns: Positions) -> Array | None:
        """(k, m), each by a push of its own; None where nothing can be pushed."""
        if not self.sweeper.engine.can_push:
            return None
        try:
            return self.sweeper.push_columns(columns, "doubtful columns", batched=False)
        except CannotSweep:
            return None


def of_plain_rows(got: Numbers, size: Numbers, expected: Numbers, held: Certificate, precision: float) -> Certificate:
    """The evidence for rows one by one: the engine's own word, where roundings explain by how much their sum is off."""
    with np.errstate(all="ignore"):
        if not may_round(np.abs(got - expected), size, precision):
            return held
    words = f"plain passes of the engine; where terms cancel, sums of rows round by {held.difference:.1g} of a column"
    return Certificate("engine", words=words)


def may_round(off: Numbers, size: Numbers, precision: float) -> bool:
    """Whether roundings can explain that columns are off by so much."""
    most = HOPELESS_HALF if precision > HALF_PRECISION else math.sqrt(precision)
    return bool((off <= most * size.max(initial=0.0)).all())


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
        allowed = precision * own * size + (precision * FLOOR_ROUNDINGS * largest + noise)
        if not size.all():
            allowed[size == 0] = 0.0 if isinstance(noise, float) else noise[size == 0]  # zeros with a nonzero probe always fail
        share, difference = _worst(off, size, allowed)
        doubtful = np.flatnonzero(off > allowed) if share > 1.0 else np.zeros(0, np.int64)
    return Verdict(Certificate("probe", share, difference, precision * (own + FLOOR_ROUNDINGS)), doubtful, allowed, True)


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
    if not off.any():
        return 0.0, 0.0
    shares, differences = off / allowed, off / size  # 0 / 0 where a column of zeros is borne out, and x / 0 where it is not
    return float(np.fmax.reduce(shares)), float(np.fmax.reduce(differences))


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
