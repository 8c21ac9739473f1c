"""What will probably run, without running anything: the plan of last time, or what the graph alone tells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wrt._core.ask import Ask
from wrt._core.flow import Flow
from wrt._core.pattern import Way
from wrt._core.plan import Compressed, Cut, Direct, Plan
from wrt._planner import cost, warm
from wrt._planner.choose import choose
from wrt._planner.strategies.cut import cut
from wrt._sparsity.compose import met

FEWEST = 65
"""A shorter side than this is swept directly: nothing that planning finds would pay for it."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The plan, the seconds it is expected to take (None: unknown), and what may still change it."""

    plan: Plan
    seconds: float | None
    note: str = ""
    sampled: bool = False
    """Whether some rows are swept before anything else, to see a structure."""


def foresee(ask: Ask, way: Way | None = None) -> Foreseen:
    """No pass is run: a structure that only sampled rows would show is not foreseen, but announced."""
    straight = choose(ask, way=way)
    find = getattr(ask.y.record, "flow", None)
    flow = None if find is None or not ask.y.record.has_history(ask.y) else find(ask.y, ask.x.values)
    if flow is None:
        return Foreseen(straight, None)
    passed = flow.between(frozenset({0}), frozenset(flow.xs))
    if min(ask.m, ask.n) < FEWEST or way is not None:
        return Foreseen(straight, _direct_seconds(flow, passed, straight))
    known = warm.recall(warm.key_of(ask))
    if isinstance(known, Compressed):
        return Foreseen(known, cost.seconds(flow, passed, known.passes + 1), "an earlier, identical question showed it")
    through = known if isinstance(known, Cut) else cut(flow, ask.m, ask.n)
    if through is not None:
        return Foreseen(through, through.seconds)
    note = "" if known or flow.mixed else "a dozen rows are sampled first: a structure they show takes fewer passes"
    return Foreseen(straight, _direct_seconds(flow, passed, straight), note, bool(note))


def _direct_seconds(flow: Flow, passed: list[int], plan: Direct) -> float:
    price = cost.seconds if plan.way == "pull" else cost.push_seconds
    return price(flow, passed, plan.passes)


def told_passes(ask: Ask) -> int | None:
    """As many passes as a structure that the operations on the way tell takes at least; None where they tell none.

    Read off three rows: what one of them meets cannot share a pass.
    """
    find, part = getattr(ask.y.record, "local_maps", None), ask.x.parts[0]
    if find is None or len(ask.x.parts) > 1 or part.into is not None or min(ask.m, ask.n) < FEWEST:
        return None
    local = find(ask.y, part.value)
    if local is None:
        return None
    rows = ask.rows.positions[np.linspace(0, ask.m - 1, 3).astype(np.int64)]
    return max(int(np.isin(part.elements.positions, met(local, row)).sum()) for row in rows.tolist())
