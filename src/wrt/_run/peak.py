"""What a dense answer takes at its peak, by the plan that is foreseen: nothing is run and nothing allocated for it."""

from __future__ import annotations

from wrt._core.ask import Ask
from wrt._core.flow import Flow
from wrt._core.pattern import Way
from wrt._core.plan import Cut, Direct
from wrt._planner.choose import choose
from wrt._planner.foresee import Foreseen, foresee, told_passes
from wrt._run.at_once import in_one_call
from wrt._run.budget import adopts, answer_bytes
from wrt._run.chunk import chunk_bytes, chunk_size, line_bytes
from wrt._run.options import current
from wrt._run.planned import too_quick, worth_planning

SAMPLED = 13  # rows that are swept together to see a structure, with their probe
FAR = 3
NOTICED = 0.25  # of the answer: less in a call is not worth a look at every operation


def may_exceed(ask: Ask, limit: int) -> bool:
    """Whether the peak is worth a closer look: far more than most graphs take would not fit."""
    return _roughly(ask) + FAR * max(chunk_bytes(ask), int(SAMPLED * line_bytes(ask))) > limit


def _roughly(ask: Ask) -> int:
    """The answer and a full call of the engine, without a look at the plan.

    Where arrays cannot be written in place, the pieces stand beside the answer that they are joined to.
    """
    whole = answer_bytes(ask)
    in_place = getattr(ask.y.record.backend.arrays, "writes_in_place", False) or adopts(ask)
    return chunk_bytes(ask) + (whole if in_place else 2 * whole)


def peak_bytes(ask: Ask) -> int:
    """Bytes at the peak of computing the dense answer, one call of the engine included."""
    record = ask.y.record
    find = getattr(record, "flow", None)
    flow = None if find is None or not all(map(record.has_history, (ask.y, *ask.x.values))) else find(ask.y, ask.x.values)
    if flow is None:
        return _roughly(ask)
    foreseen, whole = _foreseen(ask, flow), answer_bytes(ask)
    plan, item = foreseen.plan, record.backend.arrays.itemsize(ask.y)
    if isinstance(plan, Cut):
        return whole + 2 * (ask.m + ask.n) * plan.width * item
    line, alone = live(flow, plan.way) * item, flow.largest * item  # a slope of one operation, whatever the lines
    first = SAMPLED * line + alone if foreseen.sampled else 0  # before the answer is allocated
    return max(first, _with_answer(ask, foreseen, flow, line, alone))


def _foreseen(ask: Ask, flow: Flow) -> Foreseen:
    """What is foreseen; a question that is over before planning could gain anything is swept directly."""
    if worth_planning(ask) and too_quick(ask, flow):
        return Foreseen(choose(ask), None)
    return foresee(ask, current().way)


def _with_answer(ask: Ask, foreseen: Foreseen, flow: Flow, line: int, alone: int) -> int:
    """The answer and the largest call beside it; where one call returns all of it, that call alone."""
    whole, passes = answer_bytes(ask), foreseen.plan.passes
    lines = min(chunk_size(ask), passes)
    told = told_passes(ask) if foreseen.sampled and lines * line > NOTICED * whole else None
    if told is not None and told < passes:
        return whole + alone + min(lines, told + 1) * line
    if not isinstance(foreseen.plan, Direct) or lines < passes:
        return whole + alone + lines * line
    if in_one_call(ask) and foreseen.plan.way == "pull":  # seeds, unless they are the last weights; pieces, and all of them
        return 2 * whole + (0 if flow.weights() is not None else ask.m * flow.sizes[0] * line // live(flow, "pull"))
    return max(whole, lines * line)


def live(flow: Flow, way: Way) -> int:
    """Numbers that are alive at once in one line of a sweep, with its seed: twice, when a probe is put beside it."""
    readers: list[list[int]] = [[] for _ in flow.sizes]
    for tensor, sources in enumerate(flow.made_from):
        for source in sources:
            readers[source].append(tensor)
    if way == "pull":
        return 2 * flow.sizes[0] + _live_pull(flow, readers)
    return sum(flow.sizes[x] for x in flow.xs) + _live_push(flow, readers)


def _live_pull(flow: Flow, readers: list[list[int]]) -> int:
    """What waits and what is being made; then what was made, and its sum with what was there. What a sum hands on or
    spreads out is no copy."""
    held, ready = {0: 0}, [0]
    most, waiting = sum(flow.sizes[x] for x in flow.xs), list(map(len, readers))
    while ready:
        tensor = ready.pop()  # depth first, as engines go: the latest of what is complete
        sources, handed = flow.made_from[tensor], flow.is_sum(tensor)
        made = {one: 0 if handed else _made(flow, tensor, one) for one in sources}
        making = 0 if handed else sum(_making(flow, tensor, one) for one in sources)
        most = max(most, sum(held.values()) + making)
        if sources:
            there = held.pop(tensor)
            made[sources[0]] += there if handed else 0  # the same memory
        added = sum(flow.sizes[one] for one in made if one in held)
        most = max(most, sum(held.values()) + sum(made.values()) + added)
        for one in sources:
            held[one] = flow.sizes[one] if one in held else made[one]
            waiting[one] -= 1
            if not waiting[one]:
                ready.append(one)
    return most


def _made(flow: Flow, tensor: int, source: int) -> int:
    """Numbers of a source's cotangent; a sum is spread out as a view."""
    spread = not flow.products[tensor] and flow.sizes[tensor] < flow.sizes[source]
    return 0 if spread else flow.sizes[source]


def _making(flow: Flow, tensor: int, source: int) -> int:
    """What making it takes: a product is reordered for its kernels, what was broadcast is summed up once it is made."""
    made = _made(flow, tensor, source)
    return 2 * made if flow.products[tensor] else made and max(made, flow.sizes[tensor])


def _live_push(flow: Flow, readers: list[list[int]]) -> int:
    """What later tensors still need, and what is being made from it."""
    held = {x: flow.sizes[x] for x in flow.xs}
    waiting, unread = list(map(len, flow.made_from)), list(map(len, readers))
    ready, most = list(flow.xs), sum(held.values())
    while ready:
        tensor = ready.pop()
        held[tensor] = flow.sizes[tensor]
        most = max(most, sum(held.values()))
        for source in flow.made_from[tensor]:
            unread[source] -= 1
            if not unread[source]:
                del held[source]
        for reader in readers[tensor]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return most
