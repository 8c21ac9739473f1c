"""Term by term: where y is a sum and a waist lies on the way to one of its terms, as with a residual around a bottleneck."""

from __future__ import annotations

from collections.abc import Callable

from wrt._core.flow import Flow
from wrt._core.plan import Sum
from wrt._core.value import Value
from wrt._planner import cost
from wrt._planner.strategies.cut import cut

GAIN = 0.75  # of the direct time that the terms may take all together


def summed(flow: Flow, m: int, n: int, flow_of: Callable[[Value], Flow | None]) -> Sum | None:
    """The plan, where it pays; `flow_of` tells what leads to one of the terms."""
    if not flow.is_sum(0) or cut(flow, m, n) is not None:
        return None  # a waist of the whole sum takes one product
    terms = flow.made_from[0]
    seconds = len(terms) * m * n * cost.rates_on(flow).element
    passes, words = 0, list[str]()
    for tensor in terms:
        if tensor in flow.xs:
            continue
        value = flow.value(tensor)
        inner = None if value is None else flow_of(value)
        if inner is None:
            return None
        through = cut(inner, m, n)
        if through is None:
            seconds += cost.cheapest(inner, inner.between(frozenset({0}), frozenset(inner.xs)), m, n)
            passes += min(m, n)
        else:
            seconds += through.seconds
            passes += through.passes
            words.append(f"{through.width} numbers")
    straight = cost.cheapest(flow, flow.between(frozenset({0}), frozenset(flow.xs)), m, n)
    if not words or seconds > GAIN * straight:
        return None
    trails = tuple(None if tensor in flow.xs else flow.trail(tensor) for tensor in terms)
    because = f"y is a sum of {len(terms)} terms, and what leads from x to one of them passes {', '.join(words)}"
    return Sum(trails, passes, f"{because}; {passes} passes instead of {min(m, n)}")
