"""Through a waist in one call, for a backend that compiles the product of both sides into one program.

Only what is compiled anyway is worth a program of its own: until then all rows or columns are swept.
"""

from __future__ import annotations

import time
from typing import Any

from wrt._core.ask import Ask
from wrt._core.flow import Flow
from wrt._core.plan import Direct
from wrt._core.protocol import Linear
from wrt._core.report import Report, Step
from wrt._planner.strategies.cut import cut
from wrt._run.budget import SMALL, answer_bytes
from wrt._run.certify import certify
from wrt._run.direct import Swept
from wrt._run.fused import Known, ordinary, remember_block
from wrt._run.options import current
from wrt._run.planned import worth_planning


def narrowed_block(ask: Ask, linear: Linear, straight: Direct, report: Report) -> Swept | None:
    """All of J as J2 @ J1, proven; None where there is no such program, or nothing to gain, or it is not plainly right."""
    engine: Any = linear
    if not hasattr(engine, "narrowing") or not current().certify or not worth_planning(ask):
        return None
    if not (ask.rows.everything and ordinary(ask)) or answer_bytes(ask) >= SMALL:
        return None
    flow: Flow | None = engine.narrowing(straight.way)
    plan = None if flow is None else cut(flow, ask.m, ask.n)
    waist = None if flow is None or plan is None or len(plan.tensors) != 1 else flow.value(plan.tensors[0])
    if plan is None or waist is None:
        return None
    began, arrays = time.perf_counter(), ask.y.record.backend.arrays
    try:
        run = engine.through(waist)
        array = arrays.reshape(run(), (ask.m, ask.n))
    except Exception:  # an operation without a push, or without a rule for batches: other ways are left
        return None
    took, rung = time.perf_counter() - began, linear.pull_rungs[0]
    step = Step("columns above the waist, rows below it", "pull", rung, plan.passes, 1, took)
    told = Report(plan.strategy, plan.because, [step])
    told.certificate = certify(ask, linear, array, told)
    if not (told.certificate and told.certificate.finite):
        return None
    report.take(told)
    remember_block(ask, Known(plan, step, told.certificate, run))
    return Swept(array, "pull", True)
