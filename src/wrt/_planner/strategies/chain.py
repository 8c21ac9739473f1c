"""Nested cuts: everything passes several tensors in turn, and each stretch between two of them is swept in its own way.

A stretch whose own Jacobian is structured (a network for each token) takes a few passes and one product; only the others
(attention) are swept by all rows. Rows are carried from y to x, so no stretch is ever multiplied out as a full matrix.
"""

from __future__ import annotations

from wrt._core.flow import Flow
from wrt._planner import cost
from wrt._planner.narrow import waists

MANY = 256  # rows from which on a dozen samples of every stretch cost next to nothing
SHARE = 0.15  # of the work of a pass that a stretch of its own must have
WIDE = 2  # times the longer side that a tensor between two stretches may have
GAIN = 0.75  # of the direct time that the chain may take


def stretches(flow: Flow, m: int, n: int) -> tuple[int, ...]:
    """Tensors at which rows change hands, from y to x; empty where there is nothing to be gained."""
    heavy = [tensor for tensor, products in enumerate(flow.products) if products]
    if m < MANY or (heavy and flow.mixing.issuperset(heavy)):  # every product mixes a whole vector: all stretches are full
        return ()
    whole = cost.each(flow, flow.between(frozenset({0}), frozenset(flow.xs)))
    chosen: list[int] = []
    last = frozenset({0})
    for waist in waists(flow):
        if flow.sizes[waist] > WIDE * max(m, n) or flow.value(waist) is None:
            continue
        stretch = cost.each(flow, flow.between(last, frozenset({waist})))
        rest = cost.each(flow, flow.between(frozenset({waist}), frozenset(flow.xs)))
        if stretch >= SHARE * whole and rest >= SHARE * whole:
            chosen.append(waist)
            last = frozenset({waist})
    return tuple(chosen)


def pays(flow: Flow, tensors: tuple[int, ...], passes: list[int | None], m: int) -> bool:
    """Whether the chain is quicker than a direct sweep; `passes` of each stretch, None where all rows are swept."""
    ends = [frozenset({0}), *(frozenset({tensor}) for tensor in tensors), frozenset(flow.xs)]
    chained = straight = 0.0
    for later, earlier, few in zip(ends, ends[1:], passes, strict=False):
        between = flow.between(later, earlier)
        each = cost.seconds(flow, between, m)
        straight += each
        if few is None:
            chained += each
            continue
        width = sum(flow.sizes[tensor] for tensor in earlier)
        chained += cost.seconds(flow, between, few) + cost.product(m, few, width) + m * width * cost.PER_ELEMENT
    return chained <= GAIN * straight
