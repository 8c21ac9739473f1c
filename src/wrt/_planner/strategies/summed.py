"""Term by term: where y is a sum and a waist lies on the way to one of its terms, as with a residual around a bottleneck."""

from __future__ import annotations

from collections.abc import Callable

from wrt._core.flow import Flow
from wrt._core.plan import Sum
from wrt._core.value import Value
from wrt._planner import cost
from wrt._planner.strategies.cut import cut

GAIN = 0.75  # of the direct time that the terms may take all together
DEEP = 3  # sums within sums that are looked at


def summed(flow: Flow, m: int, n: int, flow_of: Callable[[Value], Flow | None], deep: int = DEEP) -> Sum | None:
    """The plan, where it pays; `flow_of` tells what leads to one of the terms."""
    if not deep or not flow.is_sum(0) or cut(flow, m, n) is not None:
        return None  # a waist of the whole sum takes one product
    terms = flow.made_from[0]
    seconds, passes = len(terms) * m * n * cost.rates_on(flow).element, 0
    for tensor in terms:
        if tensor in flow.xs:
            continue
        value = flow.value(tensor)
        inner = None if value is None else flow_of(value)
        if inner is None:
            return None
        plan = cut(inner, m, n) or summed(inner, m, n, flow_of, deep - 1)
        seconds += _straight(inner, m, n) if plan is None else plan.seconds
        passes += min(m, n) if plan is None else plan.passes
    if seconds > GAIN * _straight(flow, m, n):
        return None
    trails = tuple(None if tensor in flow.xs else flow.trail(tensor) for tensor in terms)
    because = f"y is a sum of {len(terms)} terms, each a question of its own; {passes} passes instead of {min(m, n)}"
    return Sum(trails, passes, because, seconds)


def _straight(flow: Flow, m: int, n: int) -> float:
    return cost.cheapest(flow, flow.between(frozenset({0}), frozenset(flow.xs)), m, n)
