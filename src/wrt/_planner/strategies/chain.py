"""Nested cuts: everything passes several tensors in turn, and each stretch between two of them is swept in its own way.

A stretch whose own Jacobian is structured (a network for each token, heads that do not mix) takes a few passes and one
product; the others are swept by all rows.
"""

from __future__ import annotations

from wrt._core.flow import Flow
from wrt._core.value import Value
from wrt._planner import cost
from wrt._planner.narrow import waists

MANY = 256  # rows from which on a dozen samples of every stretch cost next to nothing
SHARE = 0.15  # of the work of a pass that a stretch of its own must have
WIDE = 4  # times the longer side that a tensor between two stretches may have
GAIN = 0.75  # of the direct time that the chain may take


def stretches(flow: Flow, m: int, n: int, share: float = SHARE) -> tuple[int, ...]:
    """Tensors at which one stretch ends and the next begins, from y to x; empty where there is nothing to be gained."""
    if m < MANY:
        return ()
    ends = frozenset(flow.xs)
    whole = cost.each(flow, flow.between(frozenset({0}), ends))
    chosen: list[int] = []
    last = 0
    for waist in waists(flow):
        if flow.sizes[waist] > WIDE * max(m, n) or (value := flow.value(waist)) is None:
            continue
        stretch = cost.each(flow, flow.between(frozenset({last}), frozenset({waist})))
        rest = cost.each(flow, flow.between(frozenset({waist}), ends))
        if stretch >= share * whole and rest >= share * whole:
            chosen.append(waist)
            last = waist
        elif chosen and not stretch and flow.sizes[waist] == flow.sizes[last] and _finer(flow, value, last):
            chosen[-1] = last = waist  # the same numbers with more axes: heads of their own, for one
    return tuple(chosen)


def _finer(flow: Flow, value: Value, last: int) -> bool:
    known = flow.value(last)
    return known is not None and len(value.shape) > len(known.shape)
