"""Rows carried from y to x through several tensors: by a product where a stretch is structured, by pulls elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.flow import Flow
from wrt._core.index import Elements
from wrt._core.pattern import Compression
from wrt._core.plan import Chain, Compressed
from wrt._core.protocol import Array, Linear
from wrt._core.report import Certificate, Report
from wrt._core.value import Part, Side, Value
from wrt._planner.choose import choose
from wrt._planner.strategies.chain import pays, stretches
from wrt._planner.strategies.structured import structured
from wrt._run.certify import certify
from wrt._run.compressed import Passes, seeds_of
from wrt._run.direct import Swept
from wrt._run.sweeps import Sweeps

CALL = 2**22  # bytes of the widest tensor in one call
FEWER = 4  # times fewer passes than rows that a structured stretch must take


def plan_chain(ask: Ask, flow: Flow, report: Report) -> Chain | None:
    """Look at each stretch for a structure of its own; None where none has one that pays."""
    tensors = stretches(flow, ask.m, ask.n)
    if not tensors:
        return None
    found: list[Compressed | None] = []
    for part in _stretches(ask, flow, tensors):
        sweeps = Sweeps(part, part.y.record.linear(part.y, part.x.values), report)
        plan = _structure(part, sweeps)
        usable = plan is not None and plan.passes * FEWER <= ask.m
        found.append(plan if plan is not None and usable and (not found or _equation(plan.compression)) else None)
    few = [None if plan is None else plan.passes for plan in found]
    if not pays(flow, tensors, few, ask.m):
        return None
    taken = sum(passes or ask.m for passes in few)
    words = ", ".join(f"{ask.m} rows" if passes is None else f"{passes} passes" for passes in few)
    because = f"everything passes {_counted(len(tensors))} in turn; the stretches between take {words}"
    return Chain(tensors, tuple(flow.sizes), tuple(found), taken, because)


def _counted(number: int) -> str:
    return "one tensor" if number == 1 else f"{number} tensors"


def _structure(ask: Ask, sweeps: Sweeps) -> Compressed | None:
    arrays = ask.y.record.backend.arrays

    def support(rows: np.ndarray) -> np.ndarray:
        weights = np.zeros((len(rows), ask.m), dtype=np.float32)
        weights[np.arange(len(rows)), rows] = 1.0
        found = sweeps.sweep(arrays.from_numpy(weights, ask.y), "sampled rows of a stretch")
        return np.zeros((len(rows), ask.n), dtype=bool) if found is None else arrays.numpy(found) != 0

    plan, _ = structured(ask, support, choose(ask, can_push=False))
    return plan


def sweep_chain(ask: Ask, linear: Linear, plan: Chain, flow: Flow, report: Report) -> Swept | None:
    """The whole block, proven by one plain pull; None where a stretch has no answer."""
    arrays = ask.y.record.backend.arrays
    rows: Array | None = None  # (m, numbers of the tensor that was reached)
    chunk = _chunk(ask, flow)
    for part, stretch in zip(_stretches(ask, flow, plan.tensors), plan.stretches, strict=True):
        sweeps = Sweeps(part, part.y.record.linear(part.y, part.x.values), report, chunk=chunk)
        if stretch is None:
            seeds = arrays.from_numpy(np.eye(ask.m), part.y) if rows is None else arrays.reshape(rows, (ask.m, -1))
            rows = sweeps.sweep(seeds, "rows carried on")
        else:
            passes = sweeps.sweep(seeds_of(part, stretch), "rows together, of a stretch")
            rows = None if passes is None else _carried(part, stretch, rows, passes)
        if rows is None:
            return None
    assert rows is not None
    report.certificate = certify(ask, linear, rows, report)
    return Swept(rows, "pull", arrays.all_finite(rows))


def _chunk(ask: Ask, flow: Flow) -> int | None:
    """Rows per call, by the widest tensor on the way; None where a device wants as many as fit."""
    arrays = ask.y.record.backend.arrays
    accelerated = getattr(arrays, "accelerated", None)
    if accelerated is not None and accelerated(ask.y):
        return None
    return min(max(CALL // (flow.largest * arrays.itemsize(ask.y)), 32), 256)


def _stretches(ask: Ask, flow: Flow, tensors: tuple[int, ...]) -> Iterator[Ask]:
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


def _carried(ask: Ask, stretch: Compressed, rows: Array | None, passes: Array) -> Array:
    """rows @ J of the stretch, block by block; J itself where the rows start here."""
    arrays: Any = ask.y.record.backend.arrays  # those of a backend that can contract
    compression = stretch.compression
    if rows is None:
        return Passes(ask, stretch, passes, Certificate("none")).dense()
    equation = _equation(compression)
    assert equation is not None
    count = arrays.shape(rows)[0]
    blocks = arrays.reshape(passes, compression.box)
    found = arrays.contract(equation, arrays.reshape(rows, (count, *compression.lines)), blocks)
    return arrays.reshape(found, (count, prod(compression.box[len(compression.lines) :])))


def _equation(compression: Compression) -> str | None:
    """The product with blocks as einsum writes it; None where the compression is not one of blocks.

    An axis of the lines that takes one pass goes index by index with an axis of what a pass returns; one that takes as
    many passes as it is long is summed over.
    """
    if compression.way != "pull" or compression.owned or len(compression.owners) != len(compression.lines):
        return None
    rank = len(compression.lines)
    letters = "abcdefghijklmnopqrstuvw"
    returned = list(letters[rank : len(compression.box)])
    of_lines: list[str] = []
    for axis, (table, length) in enumerate(zip(compression.owners, compression.lines, strict=True)):
        along = [k for k, size in enumerate(table.shape) if size > 1]
        if compression.box[axis] == length and along in ([], [axis]):
            of_lines.append(letters[axis])
            continue
        if compression.box[axis] != 1 or len(along) != 1 or along[0] < rank:
            return None
        steps = np.diff(table.reshape(-1))
        if table.size != length or len(set(steps.tolist())) > 1 or table.reshape(-1)[0]:
            return None
        of_lines.append(returned[along[0] - rank])
    passed = "".join(letter if letter in letters[:rank] else letters[axis] for axis, letter in enumerate(of_lines))
    return f"z{''.join(of_lines)},{passed}{''.join(returned)}->z{''.join(returned)}"
