"""A block in one call, for a backend that compiles it into one program.

A question that was answered so goes straight to its program when it is asked again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from wrt._core.ask import Ask
from wrt._core.plan import Compressed, Cut, Direct
from wrt._core.protocol import Linear
from wrt._core.report import Certificate, Report, Step
from wrt._core.value import Side
from wrt._run.again import DENSE, Form, remember
from wrt._run.budget import SMALL, answer_bytes
from wrt._run.certify import certify
from wrt._run.direct import Swept
from wrt._run.options import current


class Known(NamedTuple):
    """A question that was answered in one call, and proven.

    `run` gives the answer again, in the shape of the question or another form.
    """

    plan: Direct | Compressed | Cut
    step: Step
    certificate: Certificate
    run: Callable[[], Any]

    def report(self, seconds: float) -> Report:
        """What there is to tell when it was asked again."""
        ran = self.step
        step = Step(ran.what, ran.way, ran.rung, ran.passes, ran.calls, seconds)
        return Report(self.plan.strategy, self.plan.because, [step], certificate=self.certificate)


def fused_block(ask: Ask, linear: Linear, plan: Direct, report: Report) -> Swept | None:
    """All rows or columns, proven; None where the backend has no such program, or its answer is not plainly right."""
    if not hasattr(linear, "block") or ask.m == 1 or not current().certify or not ordinary(ask):
        return None
    if answer_bytes(ask) >= SMALL:  # one program would hold the answer twice: a large one is written chunk by chunk
        return None
    began = time.perf_counter()
    found = linear.block(None if ask.rows.everything else ask.rows.positions, plan.way, ask.m)
    if found is None:
        return None
    arrays, (made, run) = ask.y.record.backend.arrays, found
    array = arrays.reshape(made, (ask.m, ask.n))
    pulls, took = plan.way == "pull", time.perf_counter() - began
    what, count, rung = ("rows", ask.m, linear.pull_rungs[0]) if pulls else ("columns", ask.n, linear.push_rungs[0])
    told = Report(plan.strategy, plan.because, [Step(what, plan.way, rung, count, 1, took)])
    told.certificate = certify(ask, linear, array, told)
    if not (told.certificate and told.certificate.finite):  # not finite, all zero, or wrong: looked at elsewhere
        return None
    report.take(told)
    if run is not None:
        remember_block(ask, Known(plan, told.steps[0], told.certificate, run))
    return Swept(array, plan.way, True)


def remember_block(ask: Ask, known: Known, form: Form = DENSE) -> None:
    """Answer it by the same program next time, where all of y is asked about: its answer has the shape of both tensors."""
    if ask.rows.shape == ask.y.shape and ask.x.shape == ask.x.parts[0].value.shape and ordinary(ask):
        proven = replace(known.certificate, probe=f"{known.certificate.probe}, when this was asked first,")
        remember(ask.y, ask.rows, ask.x, known._replace(certificate=proven), form)


def ordinary(ask: Ask) -> bool:
    """Whether all of one real Value is asked about."""
    arrays = ask.y.record.backend.arrays
    return _whole(ask.x) and not (arrays.is_complex(ask.y) or arrays.is_complex(ask.x.parts[0].value))


def _whole(x: Side) -> bool:
    part = x.parts[0]
    return len(x.parts) == 1 and part.into is None and not part.component and part.elements.everything
