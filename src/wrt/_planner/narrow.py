"""The narrowest set of tensors that everything from x to y passes through (maximum flow, minimum cut)."""

from __future__ import annotations

import numpy as np

from wrt._core.flow import Flow

LIMIT = 2**30  # larger capacities overflow inside scipy and silently give a flow of zero


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
    found = _by_flow(flow)
    return found if found and sum(flow.sizes[tensor] for tensor in found) < below else None


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


def _by_flow(flow: Flow) -> tuple[int, ...]:
    """Every tensor is an edge of its size, from its entrance to its exit; the cut edges are the narrowest set."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    count = len(flow.sizes)
    inside = np.arange(count)
    width = np.minimum(np.array(flow.sizes, dtype=np.int64), LIMIT)
    width[[0, *flow.xs]] = LIMIT
    later = np.array([tensor for tensor, sources in enumerate(flow.made_from) for _ in set(sources)], dtype=np.int64)
    earlier = np.array([source for sources in flow.made_from for source in set(sources)], dtype=np.int64)
    ends = np.array(flow.xs, dtype=np.int64)
    tails = np.concatenate([2 * inside, 2 * later + 1, 2 * ends + 1])
    heads = np.concatenate([2 * inside + 1, 2 * earlier, np.full(len(ends), 2 * count)])
    capacity = np.concatenate([width, np.full(len(later) + len(ends), LIMIT)]).astype(np.int32)
    network = csr_array((capacity, (tails, heads)), shape=(2 * count + 1, 2 * count + 1)).tocsr()
    result = maximum_flow(network, 0, 2 * count)
    if result.flow_value >= LIMIT:
        return ()
    left = (network - result.flow).tocsr()
    left.data = np.maximum(left.data, 0)
    left.eliminate_zeros()
    reached = np.zeros(2 * count + 1, dtype=bool)
    reached[breadth_first_order(left, 0, return_predecessors=False)] = True
    return tuple(np.flatnonzero(reached[0 : 2 * count : 2] & ~reached[1 : 2 * count : 2]).tolist())
