"""A compressed plan that has held before: seeds that are kept, one batch, one look at what comes back.

What lies between a question and its batch takes longer than a small batch does. Here nothing is decided: whatever is not
plainly as it was last time is left to those who look closer.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from wrt._core.ask import Ask
from wrt._core.plan import Compressed
from wrt._core.protocol import Array, CannotBatch
from wrt._core.report import Certificate, Report, Step
from wrt._run.answer import Answer
from wrt._run.at_once import trusted
from wrt._run.budget import SMALL, answer_bytes
from wrt._run.compressed import STRAIGHT, TOGETHER, TYPICAL, Passes, allowed, blank_for, seeds_and_probe
from wrt._run.factored import KNOWN
from wrt._run.memory import refuse_too_large, system_refusals
from wrt._run.options import DEFAULT, current
from wrt._run.proof import Numbers, at_a_glance, compare
from wrt._run.tally import IN_THE_BATCH


def straight(ask: Ask, plan: Compressed, report: Report, *, dense: bool = False) -> Passes | None:
    """The passes of a plan, proven again; None where it is not plainly so. Nothing is reported then."""
    part = ask.x.parts[0]
    record: Any = ask.y.record
    if STRAIGHT not in plan.kept or part.into is not None or current() is not DEFAULT:
        return None
    if not (record.has_history(ask.y) and record.has_history(part.value)) or record.same(ask.y, part.value):
        return None
    linear, arrays = record.linear(ask.y, (part.value,)), record.backend.arrays
    blank = blank_for(ask) if dense else None
    seeds, began = seeds_and_probe(ask, plan), perf_counter()
    try:
        found = linear.pull_at_once(seeds, trusted(ask.y), kept=plan.kept)
    except CannotBatch:
        return None
    if found is None:
        return None
    step = Step(TOGETHER, "pull", linear.swept_by, plan.passes + 1, 1, perf_counter() - began)
    brought = arrays.at_hand(found)
    numbers = None if brought is None else brought[0]
    held = _held(ask, plan, found, numbers, allowed(ask, plan, plan.kept.get("operations", TYPICAL)))
    if held is None:
        return None
    report.strategy, report.because, report.certificate = plan.strategy, plan.because, held
    report.steps.append(step)
    report.notes.append(KNOWN)
    return Passes(ask, plan, found, held, blank=blank, numbers=numbers)


def _held(ask: Ask, plan: Compressed, found: Array, numbers: Numbers | None, tolerance: float) -> Certificate | None:
    """The proof, where it holds and everything is finite."""
    if numbers is None:
        held: Certificate | None = compare(ask, plan, found, None, tolerance, IN_THE_BATCH)
    else:
        held = at_a_glance(ask, plan, numbers, None, tolerance, IN_THE_BATCH)
    return held if held is not None and held.passed and held.finite else None


def straight_block(ask: Ask, plan: Compressed) -> Answer | None:
    """All of the Jacobian the same way; one that is large only on a device, and where it fits."""
    if answer_bytes(ask) < SMALL:
        return _block(ask, plan)
    if STRAIGHT not in plan.kept or not ask.accelerated:
        return None
    refuse_too_large(ask)
    with system_refusals(ask):
        return _block(ask, plan)


def _block(ask: Ask, plan: Compressed) -> Answer | None:
    report = Report()
    found = straight(ask, plan, report, dense=True)
    if found is None:
        return None
    report.notes.extend(ask.x.notes)
    return Answer(found.dense(), True, report)
