"""Narrow tensors: where everything from x to y passes few numbers, J = J2 @ J1 takes a pass for each of those.

The narrowest set of tensors is a minimum cut. Every tensor is a pipe of its size, and flow is added along the widest path
that is left; two or three paths tell that most networks have no narrow cut at all, in microseconds. Where the flow ends
below what was asked for, the pipes that hold it back are the cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import pairwise
from sys import maxsize

from wrt._core.ask import Ask
from wrt._core.flow import Flow
from wrt._core.index import Elements
from wrt._core.plan import Plan, Product, Sum
from wrt._core.thresholds import FEW_ITEMS
from wrt._core.value import Part, Side, Value
from wrt._plan import cost
from wrt._plan.thresholds import GAIN

NESTED_SUMS = 3

Solve = Callable[[Ask], Plan]
"""The plan of a smaller question."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a plan would take, and how to make it: planning its parts may cost passes, so it has to pay first."""

    seconds: float
    plan: Callable[[], Plan]


def cut(ask: Ask, flow: Flow, solve: Solve) -> Offer | str:
    """The plan through the narrowest set of tensors, or why there is none that pays."""
    m, n = ask.m, ask.n
    tensors = narrowest(flow, below=int(GAIN * min(m, n)))
    if tensors is None:
        return f"cut: nothing narrower than {int(GAIN * min(m, n))} numbers lies between x and y"
    width = sum(flow.sizes[tensor] for tensor in tensors)
    through, straight = _seconds(flow, tensors, width, m, n), cost.direct_seconds(flow, m, n)
    if through > GAIN * straight:
        return f"cut: through {width} numbers it would take {through / straight:.2g} of the time of a direct sweep"
    values = [flow.value(tensor) for tensor in tensors]
    if None in values:
        return "cut: a tensor of the cut has another type of numbers"
    known = [value for value in values if value is not None]

    def plan() -> Product:
        last = solve(Ask(ask.y, ask.rows, _side(known)))
        first = solve(Ask(known[0], Elements.all(known[0].shape), ask.x))
        passes = min(m, width) + min(width, n)
        because = f"everything from x to y passes {width} numbers; {passes} passes instead of {min(m, n)}"
        return Product((tuple(map(flow.address, tensors)),), (last, first), passes, because, "cut", through)

    return Offer(through, plan)


def _seconds(flow: Flow, tensors: tuple[int, ...], width: int, m: int, n: int) -> float:
    middle = frozenset(tensors)
    upper, lower = flow.between(frozenset({0}), middle), flow.between(middle, frozenset(flow.xs))
    sides = cost.cheapest(flow, upper, m, width) + cost.cheapest(flow, lower, width, n)
    return sides + cost.product(flow, m, width, n)


def _side(values: list[Value]) -> Side:
    parts = tuple(Part(value, Elements.all(value.shape)) for value in values)
    return Side((sum(value.size for value in values),), parts)


def term_by_term(ask: Ask, flow: Flow, solve: Solve, deep: int = NESTED_SUMS) -> Offer | str:
    """Where y is a sum and a narrow tensor lies on the way to one of its terms, as with a residual around a bottleneck."""
    if not deep or not ask.whole or not flow.is_sum(0):
        return "sum: y is no sum of two tensors of its shape"
    m, n = ask.m, ask.n
    offers: list[tuple[int, Offer]] = []
    seconds = len(flow.made_from[0]) * m * n * cost.rates_on(flow).element
    for tensor in flow.made_from[0]:
        if tensor in flow.xs:
            continue
        value = flow.value(tensor)
        part = None if value is None else Ask(value, Elements.all(value.shape), ask.x)
        inner = None if part is None else ask.y.record.flow(part.y, ask.x.values)
        if part is None or inner is None:
            return "sum: a term cannot be asked about"
        found = cut(part, inner, solve)
        if isinstance(found, str):
            found = term_by_term(part, inner, solve, deep - 1)
        if isinstance(found, str):
            found = Offer(cost.direct_seconds(inner, m, n), partial(solve, part))
        seconds += found.seconds
        offers.append((tensor, found))
    if seconds > GAIN * cost.direct_seconds(flow, m, n):
        return "sum: its terms by themselves would take as long as the whole"

    def plan() -> Sum:
        terms = [(flow.address(tensor), offer.plan()) for tensor, offer in offers]
        straight = (None,) * (len(flow.made_from[0]) - len(terms))  # terms that are x itself
        passes = sum(term.passes for _, term in terms)
        count = len(terms) + len(straight)
        because = f"y is a sum of {count} terms, each a question of its own; {passes} passes instead of {min(m, n)}"
        return Sum((*straight, *terms), passes, because, seconds=seconds)

    return Offer(seconds, plan)


# ---------------------------------------------------------------- the narrowest set of tensors


def narrowest(flow: Flow, below: int) -> tuple[int, ...] | None:
    """The cut of least total size, as numbers of tensors; None where none is narrower than `below`.

    y and x are cuts too, but useless ones: they count as infinitely wide.
    """
    if _wide_all_the_way(flow, below):
        return None
    narrowest_one = min([size for tensor, size in enumerate(flow.sizes) if tensor and tensor not in flow.xs], default=0)
    single = min(bottlenecks(flow), key=flow.sizes.__getitem__, default=None)
    if single is not None and flow.sizes[single] <= narrowest_one:
        return (single,)  # as narrow as any tensor is: no set of several can beat it
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


def bottlenecks(flow: Flow) -> list[int]:
    """Tensors that every way from y to x passes, from y to x.

    Each tensor is visited after everything computed from it. One that is visited while no other waits is a bottleneck.
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


# ---------------------------------------------------------------- maximum flow


Pipes = dict[int, dict[int, int]]
"""What still fits from one place to another: tensor k is entered at 2k and left at 2k + 1."""


def narrowest_set(flow: Flow, below: int) -> tuple[int, ...]:
    """The set of tensors of least total size that everything passes; empty where it is not below the bound."""
    left = _pipes(flow)
    goal = {2 * x + 1 for x in flow.xs}
    total = 0
    for _ in range(FEW_ITEMS):  # a graph of more paths is taken to have no narrow cut
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
        left[2 * tensor] = {2 * tensor + 1: maxsize if tensor in ends else size}
        left[2 * tensor + 1] = {2 * source: maxsize for source in sources}
    return left


def _widest(left: Pipes, goal: set[int]) -> list[int] | None:
    """The path from y to x whose narrowest pipe is as wide as can be."""
    best = {0: maxsize}
    came: dict[int, int] = {}
    waiting = [(-maxsize, 0)]
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
