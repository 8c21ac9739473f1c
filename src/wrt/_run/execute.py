"""Answer a question: trivial ones at once, one row by one pass, the rest as planned or swept directly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wrt._core.ask import Ask
from wrt._core.plan import Direct
from wrt._core.protocol import Array, Linear
from wrt._core.report import Certificate, Report
from wrt._core.value import Side
from wrt._planner import warm
from wrt._planner.choose import choose
from wrt._run import repair
from wrt._run.again import again
from wrt._run.answer import Answer
from wrt._run.at_once import trusted
from wrt._run.complex import refuse_if_not_holomorphic
from wrt._run.direct import Swept, set_up, sweep_direct
from wrt._run.fused import fused_block
from wrt._run.memory import refuse_too_large, system_refusals
from wrt._run.narrowed import narrowed_block
from wrt._run.options import current
from wrt._run.planned import planned_block
from wrt._run.row import plain_row
from wrt._run.unplanned import shown, unplanned


def answer(ask: Ask) -> Answer:
    """The block that was asked for: zeros where independence is proven, an error where a path was cut."""
    return reached(ask) or independent(ask, ask.n)


def independent(ask: Ask, columns: int) -> Answer:
    """Exact zeros, or why they would be wrong."""
    raise_unless_independent(ask)
    zeros = ask.y.record.backend.arrays.zeros((ask.m, columns), ask.x.values[0])
    return nothing(zeros, "y does not depend on x: exact zeros", connected=False)


def reached(ask: Ask) -> Answer | None:
    """The block that was asked for; None where nothing leads from x to y."""
    arrays = ask.y.record.backend.arrays
    known = again(ask.y, ask.rows, ask.x) or (plain_row(ask.y, ask.rows, ask.x) if ask.m == 1 else None)
    if known is not None:
        return known
    straight = unplanned(ask)
    if straight.found is not None:
        return straight.found
    if ask.m == 0 or ask.n == 0:
        return nothing(arrays.zeros((ask.m, ask.n), ask.x.values[0]), "the question is empty", connected=True)
    same = _identity(ask)
    if same is not None:
        return nothing(same, "y and x are the same tensor: the identity", connected=True)
    ask.y.record.ready(ask.y, ask.x)
    refuse_too_large(ask)
    with system_refusals(ask):
        return _first_reached(ask, tried=straight.tried)


def connected(ask: Ask) -> bool:
    """Whether a gradient path leads from x to y; costs one pull and raises nothing about a missing path."""
    if ask.m == 0 or ask.n == 0 or is_identity(ask):
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
    refuse_too_large(ask)
    here, there = ask.rows.positions, ask.x.parts[0].elements.positions
    same = here[:, None] == there[None, :]
    refuse = getattr(ask.y.record, "refuse_filled", None)
    if refuse is not None and not same.any():  # other elements alone: zeros, if it is one value
        refuse(ask.y)
    return ask.y.record.backend.arrays.from_numpy(same, ask.y)


def is_identity(ask: Ask) -> bool:
    """Whether y and x are one tensor."""
    part = ask.x.parts[0]
    return len(ask.x.parts) == 1 and not part.component and ask.y.record.same(ask.y, part.value)


def nothing(array: Array, words: str, *, connected: bool = False) -> Answer:
    """An answer that needs no engine."""
    report = Report("none needed", words, certificate=Certificate("exact", words=words))
    return Answer(array, connected, report)


def _first_reached(ask: Ask, *, tried: bool) -> Answer | None:
    """Answer for x itself, or for what a view of it stands for."""
    for side in meanings(ask.x):
        if all(map(ask.y.record.has_history, side.values)):
            found = _run(ask if side is ask.x else replace(ask, x=side), tried=tried and side is ask.x)
            if found is not None:
                return found
    return None


def raise_unless_independent(ask: Ask) -> None:
    """Zeros are returned only where independence is proven."""
    verdict = ask.y.record.unreached(ask.y, ask.x.values[0])
    if isinstance(verdict, Exception):
        raise verdict


def _run(ask: Ask, *, tried: bool) -> Answer | None:
    linear = ask.y.record.linear(ask.y, ask.x.values)
    report = Report()
    swept = planned_block(ask, linear, report)
    if swept is None and not tried and not report.fallbacks and (straight := unplanned(ask).found) is not None:
        return straight
    if swept is None:
        price = getattr(linear, "direct_push_cost", 1.0)
        plan = choose(ask, can_push=bool(linear.push_rungs), way=current().way, push_cost=price)
        in_one_call = narrowed_block(ask, linear, plan, report) or fused_block(ask, linear, plan, report)
        swept = in_one_call or _direct(ask, linear, plan, report)
    if swept is None:
        return None
    report.notes.extend(ask.x.notes)
    refuse_if_not_holomorphic(ask, linear, report)
    array = swept.array if swept.finite else repair.non_finite(ask, linear, swept.array, swept.way, report)
    report.steps.extend(set_up(linear))
    return Answer(array, True, report)


def _direct(ask: Ask, linear: Linear, plan: Direct, report: Report) -> Swept | None:
    """One pass a row or a column; once proven plainly, the next such question takes its probe along in the batch."""
    key = warm.key_of(ask)
    proven = shown(ask, warm.recall(key))
    batches_hold = proven or (plan.way == "pull" and trusted(ask.y))
    swept = sweep_direct(ask, linear, plan, report, proof="in the batch" if batches_hold else "plain")
    if swept is not None and not proven and not report.fallbacks and report.certificate:
        warm.remember(key, replace(plan, proven=True))
    return swept
