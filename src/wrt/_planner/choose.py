"""Ask the strategies in turn; the cheapest plan wins."""

from __future__ import annotations

from wrt._core.ask import Ask
from wrt._core.plan import Direct, Way
from wrt._planner.strategies.direct import direct


def choose(ask: Ask, *, can_push: bool = True, way: Way | None = None, push_cost: float = 1.0) -> Direct:
    """The plan for a question. A single row or column never pays for planning."""
    return direct(ask.m, ask.n, can_push=can_push, way=way, push_cost=push_cost)
