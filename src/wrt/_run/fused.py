"""A block and its proof in one call, for a backend that compiles both into one program.

A question that was answered so is known again by its two tensors, and goes straight to its program: what lies between
costs more than a small network.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

from wrt._core.ask import Ask
from wrt._core.plan import Direct
from wrt._core.protocol import Array, Linear
from wrt._core.report import Certificate, Report, Step
from wrt._run.budget import SMALL, answer_bytes
from wrt._run.certify import signs, tolerance
from wrt._run.direct import Swept
from wrt._run.options import DEFAULT, current


class Known(NamedTuple):
    """A question that was answered in one call."""

    linear: Linear
    plan: Direct
    tolerance: float


def fused_block(ask: Ask, linear: Linear, plan: Direct, report: Report) -> Swept | None:
    """All rows or columns, proven; None where the backend has no such program, or its answer is not plainly right."""
    if not hasattr(linear, "block") or ask.m == 1 or not current().certify or not _ordinary(ask):
        return None
    if answer_bytes(ask) >= SMALL:  # one program would hold the answer twice: a large one is written chunk by chunk
        return None
    known = Known(linear, plan, tolerance(ask))
    array = _ran(ask, known, report)
    if array is None:
        return None
    if ask.rows.everything and not ask.x.notes:
        ask.y.record.asked_before[_key(ask)] = known  # type: ignore[attr-defined]
    return Swept(array, plan.way, True)


def again(ask: Ask) -> tuple[Array, Report] | None:
    """The answer to a question that was answered in one call before; None for any other."""
    before = getattr(ask.y.record, "asked_before", None)
    if not before or current() is not DEFAULT or not ask.rows.everything or not _ordinary(ask):
        return None
    known = before.get(_key(ask))
    if known is None:
        return None
    ask.y.record.ready(ask.y, ask.x)
    report = Report()
    array = _ran(ask, known, report)
    return None if array is None else (array, report)


def _ran(ask: Ask, known: Known, report: Report) -> Array | None:
    linear, plan = known.linear, known.plan
    began = time.perf_counter()
    block: Any = linear.block  # type: ignore[attr-defined]
    found = block(None if ask.rows.everything else ask.rows.positions, plan.way, signs(ask.m))
    if found is None:
        return None
    array, (summed, said, residual) = found
    scale = max(summed, said)
    if not (0.0 < scale < math.inf and residual < math.inf):  # zeros, or something not finite: looked at elsewhere
        return None
    certificate = Certificate("probe", residual / scale, known.tolerance, finite=True)
    if not certificate:
        return None
    pulls = plan.way == "pull"
    what, count, rung = ("rows", ask.m, linear.pull_rungs[0]) if pulls else ("columns", ask.n, linear.push_rungs[0])
    report.strategy, report.because, report.certificate = plan.strategy, plan.because, certificate
    report.steps.append(Step(what, plan.way, rung, count, 1, time.perf_counter() - began))
    report.steps.append(Step("certificate, in the same call", "pull", linear.pull_rungs[-1], 1, 0))
    return array


def _key(ask: Ask) -> tuple[Any, Any]:
    return ask.y.key, ask.x.parts[0].value.key


def _ordinary(ask: Ask) -> bool:
    """Whether all of one real Value is asked about."""
    arrays, part = ask.y.record.backend.arrays, ask.x.parts[0]
    if len(ask.x.parts) > 1 or part.into is not None or part.component or not part.elements.everything:
        return False
    return not (arrays.is_complex(ask.y) or arrays.is_complex(part.value))
