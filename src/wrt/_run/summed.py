"""Term by term: the terms of a sum are answered by themselves and added up, and the whole is proven by one plain pull."""

from __future__ import annotations

from typing import Any

from wrt._core.ask import Ask
from wrt._core.flow import Flow
from wrt._core.index import Elements
from wrt._core.plan import Sum
from wrt._core.protocol import Linear
from wrt._core.report import Report
from wrt._core.value import Value
from wrt._planner.strategies.summed import summed
from wrt._run.certify import certify
from wrt._run.direct import Swept
from wrt._run.factored import Solve


def plan_sum(ask: Ask, flow: Flow) -> Sum | None:
    """The plan for all of y by all of one tensor; None where y is no sum, or where its terms do not pay."""
    part, record = ask.x.parts[0], ask.y.record
    if len(ask.x.parts) > 1 or part.into is not None or part.component or not part.elements.everything:
        return None
    find: Any = getattr(record, "flow", None)
    if find is None or not hasattr(record, "follow") or not ask.rows.everything:
        return None
    return summed(flow, ask.m, ask.n, lambda value: find(value, ask.x.values))


def sweep_sum(ask: Ask, linear: Linear, plan: Sum, solve: Solve, report: Report) -> Swept | None:
    """The whole block; None where a term has no answer, or where y is another sum than it was."""
    record: Any = ask.y.record
    arrays: Any = record.backend.arrays
    total: Any = None
    for trail in plan.trails:
        value: Value | None = None if trail is None else record.follow(ask.y, trail)
        if trail is None:
            continue
        if value is None or value.shape != ask.y.shape:
            return None
        one = solve(Ask(value, Elements.all(value.shape), ask.x), report)
        if one is None:
            return None
        if total is None:
            total = one
        else:
            total += one  # in place, where arrays are written to: fresh memory takes longer than the sum
    if total is None:
        return None
    straight = plan.trails.count(None)
    if straight and ask.m != ask.n:
        return None
    if straight:
        total = arrays.add_to_diagonal(total, straight)
    report.certificate = certify(ask, linear, total, report)
    return Swept(total, "pull", report.certificate.finite or arrays.all_finite(total))
