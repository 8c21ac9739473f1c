"""Nested cuts: everything passes several tensors in turn, and each stretch between two of them is swept in its own way.

A stretch whose own Jacobian is structured (a network for each token, heads that do not mix) takes a few passes and one
product. One that ends in a sum (a residual) is the sum of its branches, each a chain of its own. Through everything else
the rows that arrive are pulled on.
"""

from __future__ import annotations

from collections.abc import Iterator

from wrt._core.ask import Ask
from wrt._core.flow import Flow
from wrt._core.index import Elements
from wrt._core.plan import Lines, Plan, Product, Sum
from wrt._core.value import Part, Side
from wrt._plan import cost
from wrt._plan.cut import bottlenecks
from wrt._plan.structured import Look, sample, structured
from wrt._plan.thresholds import COLORED_LINES, GAIN, STRETCH_SHARE

WIDE = 4  # times the longer side that a tensor between two stretches may have
FEWER = 3  # times fewer passes than rows that a structured stretch must take
SAMPLE_SECONDS = 4e-4  # that the samples of one stretch take at least,
SAMPLE_SHARE = 0.1  # of the time of a direct sweep that they may take all together: most have no structure
BRANCH_SHARE = 0.02  # of the work of a pass that a stretch of a branch must have


class Chain:
    """Looks at each stretch of one question for a structure of its own."""

    def __init__(self, ask: Ask, flow: Flow, look: Look) -> None:
        self.ask = ask
        self.flow = flow
        self.look = look

    def plan(self) -> Product | str:
        """The chain, or why it does not pay."""
        ask, flow = self.ask, self.flow
        tensors = stretches(flow, ask.m, ask.n)
        if not tensors:
            return "chain: nothing that everything passes parts the work"
        prices = _prices(flow, tensors)
        mixed = [not flow.mixing.isdisjoint(passed) for passed in _between(flow, tensors)]  # one vector: no structure to see
        direct = ask.m * sum(prices)
        if all(mixed) or SAMPLE_SECONDS * mixed.count(False) > SAMPLE_SHARE * direct:
            return "chain: no stretch can have a structure, or a look at them would take too long"
        found: list[tuple[Plan, float]] = []
        for part, each, full in zip(_parts(ask, flow, tensors), prices, mixed, strict=True):
            if full:
                found.append((_carried(ask.m), ask.m * each))
                continue
            # where no stretch before it mixes everything, the last one does: its branches are looked at, not its samples
            last = len(found) == len(tensors) and all(_is_structured(plan) for plan, _ in found)
            found.append(self._stretch(part, each, branches_first=last))
        if sum(seconds for _, seconds in found) > GAIN * direct:
            return "chain: the stretches together would take as long as a direct sweep"
        plans = tuple(plan for plan, _ in found)
        words = ", ".join(map(_words, plans))
        count = "one tensor" if len(tensors) == 1 else f"{len(tensors)} tensors"
        because = f"everything passes {count} in turn; the stretches between take {words}"
        cuts = tuple((flow.address(tensor),) for tensor in tensors)
        seconds = sum(seconds for _, seconds in found)
        return Product(cuts, plans, sum(plan.passes for plan in plans), because, "chain", seconds)

    def _stretch(self, part: Ask, each: float, *, branches_first: bool = False, split: bool = True) -> tuple[Plan, float]:
        """The best way through one stretch, for m rows that arrive at its end; `each` is the price of a pass through it."""
        carried = _carried(self.ask.m), self.ask.m * each
        if branches_first and (found := self._branches(part, carried[1])) is not None:
            return found
        plan = structured(part, sample(part, self.look), part.m, float("inf"))
        if isinstance(plan, Lines) and plan.passes * FEWER <= self.ask.m:
            product = self.ask.m * plan.passes * part.n * cost.rates_on(self.flow).product / max(1, part.m // plan.passes)
            return plan, plan.passes * each + product
        found = self._branches(part, carried[1]) if split and not branches_first else None
        return found or carried

    def _branches(self, part: Ask, instead_of: float) -> tuple[Sum, float] | None:
        """A sum as its branches; None where it is none, where a branch has no structure, or where they do not pay."""
        flow = part.y.record.flow(part.y, part.x.values) if part.whole else None
        if flow is None or not flow.is_sum(0):
            return None
        terms: list[tuple[object, Plan] | None] = []
        passes, seconds = 0, part.m * part.n * cost.rates_on(flow).element
        for summand in flow.made_from[0]:
            if summand in flow.xs:
                terms.append(None)
                continue
            found = self._branch(part, flow, summand)
            if found is None:
                return None
            terms.append((flow.address(summand), found[0]))
            passes, seconds = passes + found[0].passes, seconds + found[1]
        if seconds >= GAIN * instead_of:
            return None
        return Sum(tuple(terms), passes, "a residual: its branches one by one", seconds=seconds), seconds

    def _branch(self, part: Ask, flow: Flow, summand: int) -> tuple[Plan, float] | None:
        """One branch, all of whose stretches are structured."""
        value = flow.value(summand)
        ask = None if value is None else Ask(value, Elements.all(value.shape), part.x)
        inner = None if ask is None else ask.y.record.flow(ask.y, ask.x.values)
        if ask is None or inner is None:
            return None
        tensors = stretches(inner, self.ask.m, part.n, BRANCH_SHARE)
        parts = zip(_parts(ask, inner, tensors), _prices(inner, tensors), strict=True)
        found = []
        for one, each in parts:
            found.append(self._stretch(one, each, split=False))
            if not _is_structured(found[-1][0]):
                return None
        seconds, plans = sum(price for _, price in found), tuple(plan for plan, _ in found)
        if len(plans) == 1:
            return plans[0], seconds
        cuts = tuple((inner.address(tensor),) for tensor in tensors)
        return Product(cuts, plans, sum(plan.passes for plan in plans), "stretches of a branch", "chain", seconds), seconds


def stretches(flow: Flow, m: int, n: int, share: float = STRETCH_SHARE) -> tuple[int, ...]:
    """Tensors at which one stretch ends and the next begins, from y to x; empty where there is nothing to be gained."""
    if m < COLORED_LINES:
        return ()
    whole = cost.each(flow, cost.all_tensors(flow))
    chosen: list[int] = []
    last, passed = 0, 0.0
    for tensor in bottlenecks(flow):
        if flow.sizes[tensor] > WIDE * max(m, n):
            continue
        stretch = cost.each(flow, flow.between(frozenset({last}), frozenset({tensor})))
        if min(stretch, whole - passed - stretch) >= share * whole and flow.value(tensor) is not None:
            chosen.append(tensor)
            last, passed = tensor, passed + stretch
        elif chosen and not stretch and flow.sizes[tensor] == flow.sizes[last] and _has_more_axes(flow, tensor, last):
            chosen[-1] = last = tensor  # the same numbers with more axes: heads of their own, for one
    return tuple(chosen)


def _has_more_axes(flow: Flow, tensor: int, last: int) -> bool:
    value, known = flow.value(tensor), flow.value(last)
    return value is not None and known is not None and len(value.shape) > len(known.shape)


def _prices(flow: Flow, tensors: tuple[int, ...]) -> list[float]:
    """Seconds of one pass through each of the stretches that these tensors part."""
    return [cost.each(flow, passed) for passed in _between(flow, tensors)]


def _between(flow: Flow, tensors: tuple[int, ...]) -> list[list[int]]:
    """What a pass visits in each of the stretches."""
    ends = [*(frozenset({tensor}) for tensor in tensors), frozenset(flow.xs)]
    return [flow.between(frozenset({later}), end) for later, end in zip((0, *tensors), ends, strict=True)]


def _parts(ask: Ask, flow: Flow, tensors: tuple[int, ...]) -> Iterator[Ask]:
    """One question for each stretch: all of one tensor with respect to all of the next."""
    later, rows = ask.y, ask.rows
    for tensor in tensors:
        value = flow.value(tensor)
        assert value is not None
        yield Ask(later, rows, Side(value.shape, (Part(value, Elements.all(value.shape)),)))
        later, rows = value, Elements.all(value.shape)
    yield Ask(later, rows, ask.x)


def _carried(m: int) -> Lines:
    return Lines("pull", m, "the rows that arrive are pulled on", carried=True)


def _is_structured(plan: Plan) -> bool:
    return isinstance(plan, Lines) and plan.shared is not None


def _words(plan: Plan) -> str:
    if isinstance(plan, Sum):
        return f"{plan.passes} passes in {len(plan.terms)} branches"
    return f"{plan.passes} rows" if isinstance(plan, Lines) and plan.carried else f"{plan.passes} passes"
