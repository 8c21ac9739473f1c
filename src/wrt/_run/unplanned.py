"""Questions that planning leaves alone: it must be free where it cannot help.

Small ones; those whose like was planned before, with nothing to gain; and those that a glance at the graph tells to be
over before planning could gain anything. They are swept in one call of the engine, where that is possible.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from wrt._core.ask import Ask
from wrt._core.plan import Compressed, Cut, Direct, Plan
from wrt._planner import cost, warm
from wrt._planner.foresee import FEWEST
from wrt._planner.strategies.direct import direct
from wrt._run import planned
from wrt._run.answer import Answer
from wrt._run.at_once import AtOnce, Batches, at_once, trusted
from wrt._run.factored import through_again
from wrt._run.straight import straight_block


class Unplanned(NamedTuple):
    """The answer, where there is one, and whether it was tried to get one directly."""

    found: Answer | None
    tried: bool

    @classmethod
    def directly(cls, found: AtOnce | None) -> Unplanned:
        return cls(None if found is None else Answer(found.array, True, found.report), True)


LEFT_TO_OTHERS = Unplanned(None, False)


def unplanned(ask: Ask) -> Unplanned:
    """All of an ordinary Jacobian in one call of the engine."""
    record: Any = ask.y.record
    if not hasattr(record, "trusted") or not record.has_history(ask.y) or not ask.rows.everything:
        return LEFT_TO_OTHERS
    m, n = ask.m, ask.n
    small = min(m, n) < FEWEST
    known = None if small else warm.recall(warm.key_of(ask))
    if isinstance(known, Cut):
        return Unplanned(through_again(ask, known), False)
    if isinstance(known, Compressed):
        return Unplanned(straight_block(ask, known), False)
    if not (small or (isinstance(known, Direct) and known.whole) or (known is None and _over_at_a_glance(ask, m, n))):
        return LEFT_TO_OTHERS
    batches: Batches = "trusted" if trusted(ask.y, ask.x.values if m <= n + 2 else ()) else "unknown"
    if small and batches == "trusted":
        return Unplanned.directly(at_once(ask, batches=batches))
    if small:
        known = warm.recall(warm.key_of(ask))
    if isinstance(known, Direct) and known.whole:
        if batches == "unknown" and shown(ask, known):
            batches = "proven"
        return Unplanned.directly(at_once(ask, batches=batches, from_weights=known.from_weights))
    if known is not None:
        return LEFT_TO_OTHERS
    begun = batches == "trusted" and m <= n + 2 and record.ends_in_a_product(ask.y)
    found = (at_once(ask, batches=batches, from_weights=True) if begun else None) or at_once(ask, batches=batches)
    if found is not None:
        plan = direct(m, n, can_push=found.way == "push")
        warm.remember(warm.key_of(ask), replace(plan, from_weights=found.from_weights, proven=not found.from_weights))
    return Unplanned.directly(found)


def shown(ask: Ask, known: Plan | None) -> bool:
    """Whether an unbatched pull has proven batches of just these operations: a graph that is known as a whole."""
    if not isinstance(known, Direct) or not known.proven:
        return False
    overseen = getattr(ask.y.record, "overseen", None)
    return overseen is None or bool(overseen(ask.y))


def _over_at_a_glance(ask: Ask, m: int, n: int) -> bool:
    """Whether a direct sweep takes less time than looking for something better.

    Either few operations led to y, or all rows together are so small that starting an operation takes longer than the
    operation itself: then fewer rows would gain nothing.
    """
    record: Any = ask.y.record
    rates = cost.rates_of(ask)
    numbers = m * max(m, n) * rates.element
    if numbers < rates.operation and planned.QUICK and record.light(ask.y):
        return True
    each, quick = rates.operation + numbers, planned.quick(ask)
    operations = record.counted(ask.y, int(quick / each)) if ask.accelerated else record.few(ask.y)
    if operations is not None and operations * each < quick:
        return True
    # on a device most questions are quick: one walk through the graph tells
    return ask.accelerated and planned.worth_planning(ask) and planned.too_quick(ask, record.flow(ask.y, ask.x.values))
