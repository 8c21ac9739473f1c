"""Maximum flow from x to y, given up as soon as it is known to be too large to be of use.

Every tensor is a pipe of its size. Flow is added along the widest path that is left; two or three paths tell that most
networks have no waist at all, in microseconds. Where the flow ends below what was asked for, the pipes that hold it
back are the narrowest set of tensors.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise

from wrt._core.flow import Flow

ENDLESS = 1 << 62
MOST_PATHS = 64  # more than this many are no longer quick; such a graph is taken to have no waist

Pipes = dict[int, dict[int, int]]
"""What still fits from one place to another: tensor k is entered at 2k and left at 2k + 1."""


def narrowest_set(flow: Flow, below: int) -> tuple[int, ...]:
    """The set of tensors of least total size that everything passes; empty where it is not below the bound."""
    left = _pipes(flow)
    goal = {2 * x + 1 for x in flow.xs}
    total = 0
    for _ in range(MOST_PATHS):
        path = _widest(left, goal)
        if path is None:
            return _held_back(flow, left)
        through = min(left[a][b] for a, b in pairwise(path))
        for a, b in pairwise(path):
            left[a][b] -= through
            left.setdefault(b, {}).setdefault(a, 0)
            left[b][a] += through
        total += through
        if total >= below:
            return ()
    return ()


def _pipes(flow: Flow) -> Pipes:
    """y and x count as endlessly wide: they are cuts too, but useless ones."""
    ends = {0, *flow.xs}
    left: Pipes = {}
    for tensor, (size, sources) in enumerate(zip(flow.sizes, flow.made_from, strict=True)):
        left[2 * tensor] = {2 * tensor + 1: ENDLESS if tensor in ends else size}
        left[2 * tensor + 1] = {2 * source: ENDLESS for source in sources}
    return left


def _widest(left: Pipes, goal: set[int]) -> list[int] | None:
    """The path from y to x whose narrowest pipe is as wide as can be."""
    best = {0: ENDLESS}
    came: dict[int, int] = {}
    waiting = [(-ENDLESS, 0)]
    while waiting:
        width, here = heappop(waiting)
        if here in goal:
            path = [here]
            while path[-1]:
                path.append(came[path[-1]])
            return path[::-1]
        for there, fits in left[here].items():
            through = min(-width, fits)
            if through > best.get(there, 0):
                best[there] = through
                came[there] = here
                heappush(waiting, (-through, there))
    return None


def _held_back(flow: Flow, left: Pipes) -> tuple[int, ...]:
    """Tensors whose entrance the flow reaches and whose exit it does not."""
    reached = {0}
    waiting = [0]
    while waiting:
        for there, fits in left[waiting.pop()].items():
            if fits and there not in reached:
                reached.add(there)
                waiting.append(there)
    return tuple(k for k in range(len(flow.sizes)) if 2 * k in reached and 2 * k + 1 not in reached)
