"""The passes of a compressed plan and their proof by one program, for a backend that compiles.

The certificate is taken in NumPy, from the few numbers that come back. What was proven is made again by the same program
on the same numbers, and needs no second proof.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.pattern import Way
from wrt._core.plan import Compressed
from wrt._core.protocol import Linear
from wrt._core.report import Certificate, Report, Step
from wrt._run.budget import SMALL, adopts, answer_bytes
from wrt._run.certify import signs
from wrt._run.compressed import Passes, guess_tolerance
from wrt._run.fused import Known, ordinary, remember_block
from wrt._run.heap import aligned_zeros
from wrt._run.tally import IN_THE_BATCH

DIFFERENCES = "by differences of the run in double precision"
RULES = "rules in NumPy"
Numbers = npt.NDArray[Any]
Entries = tuple[Positions, Positions]


def sweep_program(ask: Ask, linear: Linear, plan: Compressed, report: Report, *, operations: int, dense: bool) -> Passes | None:
    """All passes in one call; `dense` tells that all of the matrix will be asked for.

    None where the backend has no such program, or where what it returns has to be looked at more closely.
    """
    if not hasattr(linear, "passes") or plan.columns is not None or not ask.rows.everything or not ordinary(ask):
        return None
    if plan.passes * max(ask.n, ask.m) * ask.y.record.backend.arrays.itemsize(ask.y) >= SMALL:
        return None
    entries = _entries(plan) if dense and answer_bytes(ask) < SMALL else None
    probes: dict[Way, Any] = {"pull": signs(ask.m)[0], "push": signs(ask.n)[0]}
    program = linear.passes(plan.compression.color, probes, plan.way, entries)
    if program is None:
        return None
    tolerance = guess_tolerance(ask, operations)
    found = _leanly(ask, plan, report, program, tolerance, entries)
    return found or _by_the_engine(ask, linear, plan, report, program, tolerance, entries, dense=dense)


def _entries(plan: Compressed) -> Entries:
    """The slots that somebody owns, and their places in the flat (m, n)."""
    if "entries" not in plan.kept:
        plan.kept["entries"] = plan.compression.flat
    found: Entries = plan.kept["entries"]
    return found


def _leanly(ask: Ask, plan: Compressed, report: Report, program: Any, tolerance: float, entries: Entries | None) -> Passes | None:
    """By the backend's own few rules, which the first answers need no compiler for; differences of the run prove them."""
    began = time.perf_counter()
    found = program.lean()
    if found is None:
        return None
    numbers, said = found
    certificate = replace(_compared(ask, plan, numbers, said, "push", tolerance), probe=DIFFERENCES)
    if not (certificate.passed and certificate.finite):
        return None
    line = "row" if plan.way == "pull" else "column"
    report.steps.append(Step(f"{line}s together", plan.way, RULES, plan.passes, 1, time.perf_counter() - began))
    report.steps.append(Step("certificate, two runs", "push", "differences", 1, 2))
    return Passes(ask, plan, numbers, certificate, whole=_laid(ask, numbers, entries))


def _by_the_engine(
    ask: Ask,
    linear: Linear,
    plan: Compressed,
    report: Report,
    program: Any,
    tolerance: float,
    entries: Entries | None,
    *,
    dense: bool,
) -> Passes | None:
    joined, began = program.joined, time.perf_counter()
    try:
        made = program.run()
    except Exception:  # an operation without a rule for batches: other ways are left
        return None
    numbers, said = _apart(ask, plan, made, joined=joined)
    certificate = _compared(ask, plan, numbers, said, plan.way if joined else "pull", tolerance)
    if not (certificate.passed and certificate.finite):
        return None
    certificate = replace(certificate, probe=IN_THE_BATCH) if joined else certificate
    steps = _steps(linear, plan, joined, time.perf_counter() - began)
    report.steps += steps
    if program.settled and made[2] is not None:
        remember_block(ask, Known(plan, steps[0], certificate, lambda: program.run()[2]))
    elif program.settled and not dense:
        again = lambda: Passes(ask, plan, _apart(ask, plan, program.run(), joined=joined)[0], certificate)
        remember_block(ask, Known(plan, steps[0], certificate, again), "passes")
    arrays = ask.y.record.backend.arrays
    whole = arrays.reshape(made[2], (ask.m, ask.n)) if made[2] is not None else _laid(ask, numbers, entries)
    return Passes(ask, plan, numbers, certificate, whole=whole)


def _laid(ask: Ask, numbers: Numbers, entries: Entries | None) -> Any | None:
    """The dense answer in memory that the framework takes over; None where it does not."""
    adopt: Any = getattr(ask.y.record.backend.arrays, "adopt", None)
    if entries is None or not adopts(ask):
        return None
    slots, places = entries
    whole = aligned_zeros((ask.m, ask.n), numbers.dtype)
    whole.reshape(-1)[places] = numbers.reshape(-1)[slots]
    return adopt(whole)


def _apart(ask: Ask, plan: Compressed, made: Any, *, joined: bool) -> tuple[Numbers, Numbers]:
    """The passes and what the probe gave, in NumPy's hands."""
    lines, said, _ = made
    numbers: Numbers = ask.y.record.backend.arrays.numpy(lines)
    if joined:
        return numbers[: plan.passes], numbers[plan.passes]
    return numbers, ask.y.record.backend.arrays.numpy(said).reshape(-1)


def _steps(linear: Linear, plan: Compressed, joined: bool, seconds: float) -> list[Step]:
    line, rungs = ("row", linear.pull_rungs) if plan.way == "pull" else ("column", linear.push_rungs)
    passes = Step(f"{line}s together", plan.way, rungs[0], plan.passes, 1, seconds)
    if joined:
        return [passes, Step(f"certificate, one more {line} of the batch", plan.way, rungs[0], 1, 0)]
    return [passes, Step("certificate, in the same call", "pull", linear.pull_rungs[-1], 1, 0)]


def _compared(ask: Ask, plan: Compressed, numbers: Numbers, said: Numbers, way: Way, tolerance: float) -> Certificate:
    """The probe two ways, and exact zeros in every slot that nobody owns. It was swept `way`: of rows, or of columns."""
    kept = f"proof by {way}"
    if kept not in plan.kept:
        plan.kept[kept] = _weights(ask, plan, way, numbers), plan.compression.free, _sums(plan, way)
    weights, free, sums = plan.kept[kept]
    if len(free) and numbers.reshape(-1)[free].any():  # a NaN is not zero either
        return Certificate("probe", math.inf, tolerance, "an entry outside the pattern is not zero")
    with np.errstate(invalid="ignore", over="ignore"):
        weighted = weights * numbers
        got, size = (
            each.sum(0) if sums is None else np.bincount(sums, each.reshape(-1), len(said))
            for each in (weighted, np.abs(weighted))
        )
        scale = max(float(size.max()), float(np.abs(said).max()))
        residual = float(np.abs(got - said).max())
    if not (0.0 < scale < math.inf and residual < math.inf):
        return Certificate("probe", math.inf, tolerance, "not finite, or nothing but zeros")
    return Certificate("probe", residual / scale, tolerance, finite=True)


def _weights(ask: Ask, plan: Compressed, way: Way, like: Numbers) -> Numbers:
    """The probe's weight of the line behind each slot, 0 where nobody owns it."""
    compression = plan.compression
    lines = sum(compression.owners) if plan.way == way else compression.along
    weights = np.broadcast_to(signs(ask.m if way == "pull" else ask.n)[0][lines], compression.box).astype(like.dtype)
    for mask in compression.owned:
        weights = weights * mask
    return weights.reshape(like.shape)


def _sums(plan: Compressed, way: Way) -> npt.NDArray[np.int64] | None:
    """Which sum each slot belongs to; None where it is that of its place in what a pass returns."""
    if plan.way == way:
        return None
    return np.broadcast_to(sum(plan.compression.owners), plan.compression.box).reshape(-1)
