"""The narrowest set of tensors that everything from x to y passes through (maximum flow, minimum cut)."""

from __future__ import annotations

from wrt._core.flow import Flow
from wrt._planner.maximum_flow import narrowest_set


def narrowest(flow: Flow, below: int) -> tuple[int, ...] | None:
    """The cut of least total size, as numbers of tensors; None where none is narrower than `below`.

    y and x are cuts too, but useless ones: they count as infinitely wide.
    """
    inner = [size for tensor, size in enumerate(flow.sizes) if tensor and tensor not in flow.xs]
    if not inner or min(inner) >= below:
        return None
    waist = min(waists(flow), key=flow.sizes.__getitem__, default=None)
    if waist is not None and flow.sizes[waist] <= min(inner):
        return (waist,)  # as narrow as any tensor is: no set of several can beat it
    found = narrowest_set(flow, below)
    return found or None


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
