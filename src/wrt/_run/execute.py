"""Carry out a plan. The only caller of pull and push."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.plan import Direct
from wrt._core.protocol import Array, CannotBatch, Linear
from wrt._core.report import Certificate, Report, Step
from wrt._core.value import Side
from wrt._planner.choose import choose
from wrt._run import repair
from wrt._run.certify import certify, passes_per_row
from wrt._run.chunk import chunk_size
from wrt._run.columns import pull_columns, tangents
from wrt._run.complex import refuse_if_not_holomorphic
from wrt._run.memory import refuse_too_large
from wrt._run.options import current
from wrt._run.planned import planned, worth_planning
from wrt._run.row import plain_row


@dataclass(slots=True)
class Answer:
    """The block of the Jacobian as an (m, n) array, whether anything connects y and x, and what ran."""

    array: Array
    connected: bool
    report: Report


def answer(ask: Ask) -> Answer:
    """The block that was asked for."""
    arrays = ask.y.record.backend.arrays
    row = plain_row(ask) if ask.rows.size == 1 and ask.x.size else None
    if row is not None:
        array, linear, report = row
        if not arrays.all_finite(array):
            array = repair.non_finite(ask, linear, array, "pull", report)
        return Answer(array, True, report)
    if ask.m == 0 or ask.n == 0:
        return nothing(arrays.zeros((ask.m, ask.n), ask.x.values[0]), "the question is empty", connected=True)
    same = _identity(ask)
    if same is not None:
        return nothing(same, "y and x are the same tensor: the identity", connected=True)
    ask.y.record.ready(ask.y, ask.x)
    refuse_too_large(ask)
    found = _first_reached(ask)
    if found is None:
        raise_unless_independent(ask)
        zeros = arrays.zeros((ask.m, ask.n), ask.x.values[0])
        return nothing(zeros, "y does not depend on x: exact zeros", connected=False)
    return found


def connected(ask: Ask) -> bool:
    """Whether a gradient path leads from x to y; costs one pull and raises nothing about a missing path."""
    if ask.m == 0 or ask.n == 0 or _identity(ask) is not None:
        return True
    record = ask.y.record
    if not record.has_history(ask.y):
        return False
    seed = record.backend.arrays.one_hot(ask.y, ask.rows.positions[:1])
    for side in meanings(ask.x):
        if all(map(record.has_history, side.values)):
            linear = record.linear(ask.y, side.values)
            if any(g is not None for g in linear.pull(seed, linear.pull_rungs[-1])):
                return True
    return False


def meanings(side: Side | None) -> Iterator[Side]:
    """A side, then what it stands for if nothing leads to it."""
    while side is not None:
        yield side
        side = side.otherwise


def _identity(ask: Ask) -> Array | None:
    if not is_identity(ask):
        return None
    here, there = ask.rows.positions, ask.x.parts[0].elements.positions
    return ask.y.record.backend.arrays.from_numpy(here[:, None] == there[None, :], ask.y)


def is_identity(ask: Ask) -> bool:
    """Whether y and x are one tensor."""
    part = ask.x.parts[0]
    return len(ask.x.parts) == 1 and not part.component and ask.y.record.same(ask.y, part.value)


def nothing(array: Array, words: str, *, connected: bool = False) -> Answer:
    """An answer that needs no engine."""
    report = Report("none needed", words, certificate=Certificate("exact", words=words))
    return Answer(array, connected, report)


def _first_reached(ask: Ask) -> Answer | None:
    """Answer for x itself, or for what a view of it stands for."""
    for side in meanings(ask.x):
        if all(map(ask.y.record.has_history, side.values)):
            found = _run(ask if side is ask.x else replace(ask, x=side))
            if found is not None:
                return found
    return None


def raise_unless_independent(ask: Ask) -> None:
    """Zeros are returned only where independence is proven."""
    verdict = ask.y.record.unreached(ask.y, ask.x.values[0])
    if isinstance(verdict, Exception):
        raise verdict


def _run(ask: Ask) -> Answer | None:
    linear = ask.y.record.linear(ask.y, ask.x.values)
    report = Report()
    if worth_planning(ask):
        found = planned(ask, linear, report)
        if found is not None:
            report.notes.extend(ask.x.notes)
            array = found.dense()
            if not ask.y.record.backend.arrays.all_finite(found.array):
                array = repair.non_finite(ask, linear, array, found.plan.way, report)
            return Answer(array, True, report)
    plan = choose(ask, can_push=bool(linear.push_rungs), way=current().way)
    array = _push_all(ask, linear, plan, report) if plan.way == "push" else None
    if array is None:
        plan = plan if plan.way == "pull" else choose(ask, can_push=False)
        array = _pull_all(ask, linear, plan, report)
    if array is None:
        return None
    report.strategy, report.because = plan.strategy, plan.because
    report.notes.extend(ask.x.notes)
    refuse_if_not_holomorphic(ask, linear, report)
    array = repair.non_finite(ask, linear, array, plan.way, report)
    return Answer(array, True, report)


def _pull_all(ask: Ask, linear: Linear, plan: Direct, report: Report) -> Array | None:
    """Every row, on the first rung of the ladder whose answer holds."""
    arrays = ask.y.record.backend.arrays
    positions = ask.rows.positions

    def sweep(rows: Positions, rung: str) -> Array | None:
        return pull_columns(ask, linear, arrays.one_hot(ask.y, positions[rows]), rung)

    per_row = passes_per_row(ask)
    rungs = linear.pull_rungs if ask.m > 1 else linear.pull_rungs[-1:]
    for rung in rungs:
        step = Step("rows", "pull", rung, 0, 0)
        try:
            array = _in_chunks(ask, ask.m, lambda rows, rung=rung: sweep(rows, rung), 0, step, per_row)  # type: ignore[misc]
        except CannotBatch as refusal:
            report.fallbacks.append(f"{rung}: {refusal}")
            continue
        report.steps.append(step)
        if array is None:
            return None
        if _holds(ask, linear, array, report, single=ask.m == 1) or rung == rungs[-1]:
            return array
        report.fallbacks.append(f"{rung}: the certificate disagreed ({report.certificate})")
    raise AssertionError("the last rung never refuses")


def _push_all(ask: Ask, linear: Linear, plan: Direct, report: Report) -> Array | None:
    """Every column, or None where pushing is refused or its answer does not hold: then rows are pulled."""
    arrays = ask.y.record.backend.arrays
    rows = ask.rows

    def sweep(columns: Positions, rung: str) -> Array | None:
        pushed = linear.push(tangents(ask, columns), rung)
        if pushed is None:
            return None
        flat = arrays.reshape(pushed, (len(columns), -1))
        return arrays.transpose(flat if rows.everything else arrays.take(flat, rows.positions, 1))

    for rung in linear.push_rungs:
        step = Step("columns", "push", rung, 0, 0)
        try:
            array = _in_chunks(ask, ask.n, lambda columns, rung=rung: sweep(columns, rung), 1, step, 1)  # type: ignore[misc]
        except CannotBatch as refusal:
            report.fallbacks.append(f"{rung}: {refusal}")
            continue
        if array is None:
            return None
        report.steps.append(step)
        if _holds(ask, linear, array, report, single=False):
            return array
        report.fallbacks.append(f"{rung}: the certificate disagreed ({report.certificate})")
    return None


def _in_chunks(
    ask: Ask, count: int, sweep: Callable[[Positions], Array | None], axis: int, step: Step, per_sweep: int
) -> Array | None:
    """Sweep `count` rows or columns, a chunk at a time, into one array."""
    arrays = ask.y.record.backend.arrays
    size = chunk_size(ask)
    started = time.perf_counter()
    blocks: list[Array] = []
    for start in range(0, count, size):
        chosen = np.arange(start, min(start + size, count))
        block = sweep(chosen)
        step.passes += len(chosen) * per_sweep
        step.calls += per_sweep if step.rung.find("one by one") < 0 else len(chosen) * per_sweep
        if block is None:
            return None
        blocks.append(block)
    step.seconds = time.perf_counter() - started
    return arrays.concat(blocks, axis)


def _holds(ask: Ask, linear: Linear, array: Array, report: Report, *, single: bool) -> bool:
    if single:
        report.certificate = Certificate("engine")
    elif not current().certify:
        report.certificate = Certificate("none")
    else:
        report.certificate = certify(ask, linear, array, report)
    return report.certificate.kind == "none" or report.certificate.passed
