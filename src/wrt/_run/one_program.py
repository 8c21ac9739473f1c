"""The passes of a compressed plan and their proof by one program, for a backend that compiles.

The certificate is taken in NumPy, from the few numbers that come back. What was proven is made again by a program that
gives its entries alone, held once to those that were proven: the same program on the same numbers gives them every time.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.pattern import Way
from wrt._core.plan import Compressed
from wrt._core.protocol import Linear
from wrt._core.report import Report, Step
from wrt._run.again import DENSE, PASSES, SPARSE
from wrt._run.budget import SMALL, adopts, answer_bytes
from wrt._run.certify import signs
from wrt._run.compressed import Passes, guess_tolerance
from wrt._run.fused import Known, ordinary, remember_block
from wrt._run.heap import aligned_zeros
from wrt._run.proof import compare_numbers
from wrt._run.repeated import FORMS, Repeated
from wrt._run.tally import IN_THE_BATCH

DIFFERENCES = "by differences of the run in double precision"
RULES = "rules in NumPy"
Numbers = npt.NDArray[Any]


def sweep_program(ask: Ask, linear: Linear, plan: Compressed, report: Report, *, operations: int, dense: bool) -> Passes | None:
    """All passes in one call; `dense` tells that all of the matrix will be asked for.

    None where the backend has no such program, or where what it returns has to be looked at more closely.
    """
    if not hasattr(linear, "passes") or plan.columns is not None or not ask.rows.everything or not ordinary(ask):
        return None
    if plan.passes * max(ask.n, ask.m) * ask.y.record.backend.arrays.itemsize(ask.y) >= SMALL:
        return None
    probes: dict[Way, Any] = {"pull": signs(ask.m)[0], "push": signs(ask.n)[0]}
    program = linear.passes(plan.compression.color, probes, plan.way)
    if program is None:
        return None
    tolerance = guess_tolerance(ask, operations)
    dense = dense and answer_bytes(ask) < SMALL
    found = _leanly(ask, plan, report, program, tolerance)
    if found is None:
        found = _by_the_engine(ask, linear, plan, report, program, tolerance, dense=dense)
    if found is not None and dense and adopts(ask):
        return replace(found, whole=_laid(ask, plan, found.found))
    return found


def _leanly(ask: Ask, plan: Compressed, report: Report, program: Any, tolerance: float) -> Passes | None:
    """By the backend's own few rules, which the first answers need no compiler for; differences of the run prove them."""
    began = time.perf_counter()
    found = program.lean()
    if found is None:
        return None
    numbers, said = found
    certificate = replace(compare_numbers(ask, plan, numbers, said, "push", tolerance), probe=DIFFERENCES)
    if not (certificate.passed and certificate.finite):
        return None
    line = "row" if plan.way == "pull" else "column"
    report.steps.append(Step(f"{line}s together", plan.way, RULES, plan.passes, 1, time.perf_counter() - began))
    report.steps.append(Step("certificate, two runs", "push", "differences", 1, 2))
    return Passes(ask, plan, numbers, certificate)


def _by_the_engine(
    ask: Ask, linear: Linear, plan: Compressed, report: Report, program: Any, tolerance: float, *, dense: bool
) -> Passes | None:
    began, numpy = time.perf_counter(), ask.y.record.backend.arrays.numpy
    try:
        lines, beside = program.run()
    except Exception:  # an operation without a rule for batches: other ways are left
        return None
    numbers = numpy(lines)
    numbers, said = (numbers[:-1], numbers[-1]) if program.joined else (numbers, numpy(beside).reshape(-1))
    certificate = compare_numbers(ask, plan, numbers, said, plan.way if program.joined else "pull", tolerance)
    if not (certificate.passed and certificate.finite):
        return None
    certificate = replace(certificate, probe=IN_THE_BATCH) if program.joined else certificate
    steps = _steps(linear, plan, program.joined, time.perf_counter() - began)
    report.steps += steps
    found = Passes(ask, plan, numbers, certificate)
    if program.settled:
        for form in [DENSE] if dense else [PASSES, SPARSE]:
            remember_block(ask, Known(plan, steps[0], certificate, Repeated(partial(FORMS[form], found, program))), form)
    return found


def _laid(ask: Ask, plan: Compressed, numbers: Numbers) -> Any:
    """The dense answer in memory that the framework takes over."""
    if "entries" not in plan.kept:
        plan.kept["entries"] = plan.compression.flat
    slots, places = plan.kept["entries"]
    whole = aligned_zeros((ask.m, ask.n), numbers.dtype)
    whole.reshape(-1)[places] = numbers.reshape(-1)[slots]
    arrays: Any = ask.y.record.backend.arrays
    return arrays.adopt(whole)


def _steps(linear: Linear, plan: Compressed, joined: bool, seconds: float) -> list[Step]:
    line, rungs = ("row", linear.pull_rungs) if plan.way == "pull" else ("column", linear.push_rungs)
    passes = Step(f"{line}s together", plan.way, rungs[0], plan.passes, 1, seconds)
    if joined:
        return [passes, Step(f"certificate, one more {line} of the batch", plan.way, rungs[0], 1, 0)]
    return [passes, Step("certificate, in the same call", "pull", linear.pull_rungs[-1], 1, 0)]
