"""Through the waist: where everything from x to y passes few numbers, J = J2 @ J1 takes a pass for each of those."""

from __future__ import annotations

from wrt._core.flow import Flow
from wrt._core.plan import Cut
from wrt._planner import cost
from wrt._planner.narrow import narrowest

GAIN = 0.8  # of the direct time that a cut may take
NARROW = 0.75  # of the shorter side that a cut may have


def cut(flow: Flow, m: int, n: int) -> Cut | None:
    """The plan through the narrowest set of tensors, where it pays."""
    tensors = narrowest(flow, below=int(NARROW * min(m, n)))
    if tensors is None:
        return None
    width = sum(flow.sizes[tensor] for tensor in tensors)
    waist = frozenset(tensors)
    upper = flow.between(frozenset({0}), waist)
    lower = flow.between(waist, frozenset(flow.xs))
    sides = cost.cheapest(flow, upper, m, width) + cost.cheapest(flow, lower, width, n)
    through = sides + cost.product(flow, m, width, n)
    straight = cost.cheapest(flow, upper + lower, m, n)
    if through > GAIN * straight:
        return None
    passes = min(m, width) + min(width, n)
    because = f"everything from x to y passes {width} numbers; {passes} passes instead of {min(m, n)}"
    return Cut(tensors, tuple(flow.sizes), width, passes, because, through, trails=tuple(map(flow.trail, tensors)))
