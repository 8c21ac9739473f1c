"""A block in one call, for a backend that compiles it into one program.

A question that was answered so is known again by its two tensors, and goes straight to its program: what lies between
costs more than a small network.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from wrt._core.ask import Ask
from wrt._core.plan import Direct
from wrt._core.protocol import Array, Linear
from wrt._core.report import Certificate, Report, Step
from wrt._run.budget import SMALL, answer_bytes
from wrt._run.certify import certify
from wrt._run.direct import Swept
from wrt._run.options import DEFAULT, current

BEFORE = "by one unbatched pull, when this was asked first,"


class Known(NamedTuple):
    """A question that was answered in one call, and proven."""

    linear: Linear
    plan: Direct
    certificate: Certificate
    run: Callable[[], Array]


def fused_block(ask: Ask, linear: Linear, plan: Direct, report: Report) -> Swept | None:
    """All rows or columns, proven; None where the backend has no such program, or its answer is not plainly right."""
    if not hasattr(linear, "block") or ask.m == 1 or not current().certify or not _ordinary(ask):
        return None
    if answer_bytes(ask) >= SMALL:  # one program would hold the answer twice: a large one is written chunk by chunk
        return None
    began = time.perf_counter()
    found = linear.block(None if ask.rows.everything else ask.rows.positions, plan.way, ask.m)
    if found is None:
        return None
    array, run = found
    told, took = Report(), time.perf_counter() - began
    certificate = certify(ask, linear, array, told)
    if not (certificate and certificate.finite):  # not finite, nothing but zeros, or wrong: looked at elsewhere
        return None
    known = Known(linear, plan, certificate, run)
    _tell(report, known, ask.m, ask.n, took)
    report.steps.extend(told.steps)
    if ask.rows.everything and not ask.x.notes:
        ask.y.record.asked_before[_key(ask)] = known  # type: ignore[attr-defined]
    return Swept(array, plan.way, True)


def again(ask: Ask) -> tuple[Array, Callable[[], Report]] | None:
    """The answer to a question that was answered in one call before, and how to tell of it; None for any other.

    The program and its numbers are those that were proven, so the proof holds for what it returns.
    """
    before = getattr(ask.y.record, "asked_before", None)
    if not before or current() is not DEFAULT or not ask.rows.everything or not _ordinary(ask):
        return None
    known = before.get(_key(ask))
    if known is None:
        return None
    ask.y.record.ready(ask.y, ask.x)
    began = time.perf_counter()
    try:
        array = known.run()
    except Exception:  # no memory, an array that was given away: those who can tell are asked
        del before[_key(ask)]
        return None
    return array, partial(_retold, known, ask.m, ask.n, time.perf_counter() - began)


def _retold(known: Known, m: int, n: int, seconds: float) -> Report:
    report = Report()
    _tell(report, known, m, n, seconds)
    report.certificate = replace(known.certificate, probe=BEFORE)
    return report


def _tell(report: Report, known: Known, m: int, n: int, seconds: float) -> None:
    linear, plan = known.linear, known.plan
    pulls = plan.way == "pull"
    what, count, rung = ("rows", m, linear.pull_rungs[0]) if pulls else ("columns", n, linear.push_rungs[0])
    report.strategy, report.because, report.certificate = plan.strategy, plan.because, known.certificate
    report.steps.append(Step(what, plan.way, rung, count, 1, seconds))


def _key(ask: Ask) -> tuple[Any, Any]:
    return ask.y.key, ask.x.parts[0].value.key


def _ordinary(ask: Ask) -> bool:
    """Whether all of one real Value is asked about."""
    arrays, part = ask.y.record.backend.arrays, ask.x.parts[0]
    if len(ask.x.parts) > 1 or part.into is not None or part.component or not part.elements.everything:
        return False
    return not (arrays.is_complex(ask.y) or arrays.is_complex(part.value))
