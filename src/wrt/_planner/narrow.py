"""The narrowest set of tensors that everything from x to y passes through (maximum flow, minimum cut)."""

from __future__ import annotations

from wrt._core.flow import Flow
from wrt._planner.maximum_flow import narrowest_set


def narrowest(flow: Flow, below: int) -> tuple[int, ...] | None:
    """The cut of least total size, as numbers of tensors; None where none is narrower than `below`.

    y and x are cuts too, but useless ones: they count as infinitely wide.
    """
    if _wide_all_the_way(flow, below):
        return None
    narrowest_one = min([size for tensor, size in enumerate(flow.sizes) if tensor and tensor not in flow.xs], default=0)
    waist = min(waists(flow), key=flow.sizes.__getitem__, default=None)
    if waist is not None and flow.sizes[waist] <= narrowest_one:
        return (waist,)  # as narrow as any tensor is: no set of several can beat it
    found = narrowest_set(flow, below)
    return found or None


def _wide_all_the_way(flow: Flow, below: int) -> bool:
    """Whether a way from y to x passes no tensor narrower than that: whatever cuts it holds one of those it passes."""
    seen = {0}
    waiting = [0]
    while waiting:
        for source in flow.made_from[waiting.pop()]:
            if source in flow.xs:
                return True
            if source not in seen and flow.sizes[source] >= below:
                seen.add(source)
                waiting.append(source)
    return False


def waists(flow: Flow) -> list[int]:
    """Tensors that every way from y to x passes, from y to x.

    Each tensor is visited after everything computed from it. One that is visited while no other waits is a waist.
    """
    readers = [0] * len(flow.sizes)
    for sources in flow.made_from:
        for source in set(sources):
            readers[source] += 1
    found: list[int] = []
    seen = {0}
    ready = [0]
    waiting = 1
    while ready:
        tensor = ready.pop()
        if waiting == 1 and tensor and tensor not in flow.xs:
            found.append(tensor)
        waiting -= 1
        for source in set(flow.made_from[tensor]):
            if source not in seen:
                seen.add(source)
                waiting += 1
            readers[source] -= 1
            if readers[source] == 0:
                ready.append(source)
    return found
