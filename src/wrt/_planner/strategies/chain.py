"""Nested cuts: everything passes several tensors in turn, and each stretch between two of them is swept in its own way.

A stretch whose own Jacobian is structured (a network for each token, heads that do not mix) takes a few passes and one
product; the others are swept by all rows.
"""

from __future__ import annotations

from wrt._core.flow import Flow
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
    whole = cost.each(flow, flow.between(frozenset({0}), frozenset(flow.xs)))
    chosen: list[int] = []
    last, passed = 0, 0.0
    for waist in waists(flow):
        if flow.sizes[waist] > WIDE * max(m, n):
            continue
        stretch = cost.each(flow, flow.between(frozenset({last}), frozenset({waist})))
        if min(stretch, whole - passed - stretch) >= share * whole and flow.value(waist) is not None:
            chosen.append(waist)
            last, passed = waist, passed + stretch
        elif chosen and not stretch and flow.sizes[waist] == flow.sizes[last] and _finer(flow, waist, last):
            chosen[-1] = last = waist  # the same numbers with more axes: heads of their own, for one
    return tuple(chosen)


def prices_of(flow: Flow, tensors: tuple[int, ...]) -> list[float]:
    """Seconds of one pass through each of the stretches that these tensors part."""
    return [cost.each(flow, passed) for passed in _between(flow, tensors)]


def mixed(flow: Flow, tensors: tuple[int, ...]) -> list[bool]:
    """Whether a matrix times one vector lies in each of them: no samples are needed to see that it has no structure."""
    return [not flow.mixing.isdisjoint(passed) for passed in _between(flow, tensors)]


def _between(flow: Flow, tensors: tuple[int, ...]) -> list[list[int]]:
    """What a pass visits in each of the stretches."""
    ends = [*(frozenset({tensor}) for tensor in tensors), frozenset(flow.xs)]
    return [flow.between(frozenset({later}), end) for later, end in zip((0, *tensors), ends, strict=True)]


def _finer(flow: Flow, tensor: int, last: int) -> bool:
    value, known = flow.value(tensor), flow.value(last)
    return value is not None and known is not None and len(value.shape) > len(known.shape)
