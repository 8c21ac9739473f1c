"""Nested cuts: each stretch between two tensors is passed in its own way, and the stretches are multiplied.

A stretch that is structured takes a few passes. One that ends in a sum (a residual) is the sum of its branches, each a
chain of its own. Everything else is swept by all rows, carried on from where they stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.flow import Flow
from wrt._core.index import Elements, Positions
from wrt._core.plan import Chain, Compressed, Stretch
from wrt._core.protocol import Array, Linear
from wrt._core.report import Certificate, Report
from wrt._core.value import Part, Side, Value
from wrt._planner import cost
from wrt._planner.choose import choose
from wrt._planner.strategies.chain import GAIN, mixed, prices_of, stretches
from wrt._planner.strategies.structured import structured
from wrt._run.blocks import Blocks, add, dense, from_passes, full, layout, multiplied
from wrt._run.certify import certify, compare, probe_of
from wrt._run.compressed import Passes, seeds_of
from wrt._run.direct import Swept
from wrt._run.sweeps import Sweeps
from wrt._run.tally import IN_THE_BATCH

CALL = 2**22  # bytes of the widest tensor in one call: measured best from 4 to 8 MB
FEWER = 3  # times fewer passes than rows that a structured stretch must take
LOOK = 4e-4  # seconds that samples of one stretch take at least,
SPENT = 0.1  # of the time of a direct sweep that they may take all together: most have no structure


def plan_chain(ask: Ask, flow: Flow, report: Report) -> Chain | None:
    """Look at each stretch for a structure of its own; None where none has one that pays, or where looking would not."""
    tensors = stretches(flow, ask.m, ask.n)
    if not tensors:
        return None
    found: list[Stretch] = []
    prices, dense_ones = prices_of(flow, tensors), mixed(flow, tensors)
    if LOOK * dense_ones.count(False) > SPENT * ask.m * sum(prices) or all(dense_ones):
        return None
    for part, each, full_one in zip(_parts(ask, flow, tensors), prices, dense_ones, strict=True):
        if full_one:
            found.append(Stretch(ask.m, ask.m * each))
            continue
        # where no stretch before it mixes everything, the last one does: its branches are looked at, not its samples
        mixes = len(found) == len(tensors) and all(stretch.structured for stretch in found)
        found.append(_planned(part, each, report, ask.m, split=True, mixes=mixes))
    if sum(stretch.seconds for stretch in found) > GAIN * ask.m * sum(prices):
        return None
    words = ", ".join(map(str, found))
    because = f"everything passes {_counted(len(tensors))} in turn; the stretches between take {words}"
    return Chain(tensors, tuple(flow.sizes), tuple(found), sum(stretch.passes for stretch in found), because)


def _counted(number: int) -> str:
    return "one tensor" if number == 1 else f"{number} tensors"


def _planned(part: Ask, each: float, report: Report, m: int, *, split: bool, mixes: bool = False) -> Stretch:
    """The best way through one stretch, for m rows that arrive at its end; `each` is the price of a pass through it."""
    by_rows = Stretch(m, m * each)
    if mixes and (found := _split(part, report, by_rows)) is not None:
        return found
    plan = _structure(part, Sweeps(part, part.y.record.linear(part.y, part.x.values), report))
    usable = plan is not None and (layout(plan.compression) is not None or not part.rows.everything)
    if plan is not None and usable and plan.passes * FEWER <= m:
        product = m * plan.passes * part.n * cost.rates_of(part).product / max(1, part.m // plan.passes)
        return Stretch(plan.passes, plan.passes * each + product, structured=plan)
    return (_split(part, report, by_rows) if split and not mixes else None) or by_rows


def _split(part: Ask, report: Report, by_rows: Stretch) -> Stretch | None:
    """The branches of a sum, where they pay."""
    flow = _flow(part) if part.rows.everything and _whole(part) else None
    branches = None if flow is None else _branches(part, flow, report, by_rows.passes)
    return branches if branches is not None and branches.seconds < GAIN * by_rows.seconds else None


def _branches(part: Ask, flow: Flow, report: Report, m: int) -> Stretch | None:
    """A sum as its branches; None where it is none, or where a branch would have to be swept by all rows."""
    if not flow.is_sum(0):
        return None
    chains: list[tuple[tuple[int, ...], tuple[Stretch, ...]] | None] = []
    passes, seconds = 0, part.m * part.n * cost.rates_of(part).element
    for summand in flow.made_from[0]:
        if summand in flow.xs:
            chains.append(None)
            continue
        value = flow.value(summand)
        ask = None if value is None else replace(part, y=value, rows=Elements.all(value.shape))
        inner = None if ask is None else _flow(ask)
        if ask is None or inner is None:
            return None
        tensors = stretches(inner, m, part.n, share=0.02)
        found: list[Stretch] = []
        for one, each in zip(_parts(ask, inner, tensors), prices_of(inner, tensors), strict=True):
            found.append(_planned(one, each, report, m, split=False))
            if found[-1].structured is None:
                return None
        chains.append((tensors, tuple(found)))
        passes += sum(stretch.passes for stretch in found)
        seconds += sum(stretch.seconds for stretch in found)
    return Stretch(passes, seconds, branches=tuple(chains))


def _structure(ask: Ask, sweeps: Sweeps) -> Compressed | None:
    def support(rows: Positions) -> npt.NDArray[np.bool_]:
        found = sweeps.rows(rows, "sampled rows of a stretch")
        return np.zeros((len(rows), ask.n), dtype=bool) if found is None else sweeps.nonzero(found)

    plan, _ = structured(ask, support, choose(ask, can_push=False))
    return plan


def sweep_chain(
    ask: Ask, linear: Linear, plan: Chain, flow: Flow, report: Report, expected: Array | None = None
) -> Swept | None:
    """The whole block, proven by one plain pull, or by what the engine said of the probe already; None where a stretch has
    no answer."""
    arrays: Any = ask.y.record.backend.arrays
    chunk = _chunk(ask, flow)
    pending: list[Blocks] = []
    for part, stretch in zip(_parts(ask, flow, plan.tensors), plan.stretches, strict=True):
        if stretch.structured is None and not stretch.branches:
            sweeps = Sweeps(part, part.y.record.linear(part.y, part.x.values), report, chunk=chunk)
            rows = dense(arrays, multiplied(arrays, pending)) if pending else arrays.from_numpy(np.eye(ask.m), part.y)
            carried = sweeps.sweep(rows, "rows carried on")
            pending = [] if carried is None else [full(carried, ask.m, part.n)]
            if carried is None:
                return None
            continue
        after = _structured(part, stretch, report, chunk) if stretch.structured else _sum(part, stretch, pending, report, chunk)
        if after is None:
            return None
        pending = [*pending, after] if stretch.structured else [after]
    found = dense(arrays, multiplied(arrays, pending))
    if expected is None:
        report.certificate = certify(ask, linear, found, report)
    else:
        report.certificate = replace(compare(ask, probe_of(ask), found, expected), probe=IN_THE_BATCH)
    return Swept(found, "pull", report.certificate.finite or arrays.all_finite(found))


def _structured(part: Ask, stretch: Stretch, report: Report, chunk: int | None) -> Blocks | None:
    """The Jacobian of a stretch that is structured."""
    plan = stretch.structured
    assert plan is not None
    sweeps = Sweeps(part, part.y.record.linear(part.y, part.x.values), report, chunk=chunk)
    passes = sweeps.sweep(seeds_of(part, plan), "rows together, of a stretch")
    if passes is None or layout(plan.compression) is not None:
        return None if passes is None else from_passes(part, plan.compression, passes)
    return full(Passes(part, plan, passes, Certificate("none")).dense(), part.m, part.n)


def _sum(part: Ask, stretch: Stretch, before: list[Blocks], report: Report, chunk: int | None) -> Blocks | None:
    """What lies before a sum, times the sum: each of its branches is multiplied by itself.

    Blocks before a branch mostly meet blocks in it, while the sum is a matrix without structure.
    """
    arrays: Any = part.y.record.backend.arrays
    flow = _flow(part)
    if flow is None or not flow.is_sum(0) or len(flow.made_from[0]) != len(stretch.branches):
        return None
    ahead = [multiplied(arrays, before)] if before else []
    total: Array | None = None
    straight = 0
    for summand, chain in zip(flow.made_from[0], stretch.branches, strict=True):
        if chain is None:
            straight += 1
            continue
        branch = _branch(part, flow, summand, chain, report, chunk)
        if branch is None:
            return None
        one = dense(arrays, multiplied(arrays, [*ahead, *branch]))
        total = one if total is None else total + one
    if total is None:
        return None
    for _ in range(straight):
        total = add(arrays, total, ahead[0]) if ahead else arrays.add_to_diagonal(total, 1)
    return full(total, ahead[0].shape[0] if ahead else part.m, part.n)


def _branch(
    part: Ask, flow: Flow, summand: int, chain: tuple[tuple[int, ...], tuple[Stretch, ...]], report: Report, chunk: int | None
) -> list[Blocks] | None:
    """The stretches of one branch, all of them structured."""
    value = flow.value(summand)
    if value is None:
        return None
    ask = replace(part, y=value, rows=Elements.all(value.shape))
    inner = _flow(ask)
    tensors, stretches_of = chain
    if inner is None or any(tensor >= len(inner.sizes) for tensor in tensors):
        return None
    parts = zip(_parts(ask, inner, tensors), stretches_of, strict=True)
    found = [_structured(each, one, report, chunk) for each, one in parts]
    return None if None in found else [one for one in found if one is not None]


def _flow(ask: Ask) -> Flow | None:
    find = getattr(ask.y.record, "flow", None)
    return None if find is None else find(ask.y, ask.x.values)


def _whole(ask: Ask) -> bool:
    """Whether x is all of one tensor."""
    return len(ask.x.parts) == 1 and ask.x.parts[0].into is None and ask.x.parts[0].elements.everything


def _chunk(ask: Ask, flow: Flow) -> int | None:
    """Rows per call, by the widest tensor on the way; None where a device wants as many as fit."""
    arrays = ask.y.record.backend.arrays
    if ask.accelerated:
        return None
    return min(max(CALL // (flow.largest * arrays.itemsize(ask.y)), 32), 256)


def _parts(ask: Ask, flow: Flow, tensors: tuple[int, ...]) -> Iterator[Ask]:
    """One question for each stretch: all of one tensor with respect to all of the next."""
    later, rows = ask.y, ask.rows
    for tensor in tensors:
        value = flow.value(tensor)
        assert value is not None
        yield Ask(later, rows, _all_of(value))
        later, rows = value, Elements.all(value.shape)
    yield replace(ask, y=later, rows=rows)


def _all_of(value: Value) -> Side:
    return Side(value.shape, (Part(value, Elements.all(value.shape)),))
