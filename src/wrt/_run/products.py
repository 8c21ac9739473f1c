"""Products with the Jacobian, its diagonal and its nonzeros, none of which need all of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Elements, Positions
from wrt._core.protocol import Array, CannotBatch, Linear, random_signs
from wrt._core.report import Report
from wrt._planner.choose import choose
from wrt._run import execute, repair
from wrt._run.certify import SEED, tolerance
from wrt._run.chunk import chunk_size
from wrt._run.columns import pull_columns, spread_tangents
from wrt._run.complex import refuse_if_not_holomorphic
from wrt._run.compressed import Passes
from wrt._run.direct import sweep_direct
from wrt._run.factored import Factors
from wrt._run.options import current
from wrt._run.planned import Planned, worth_planning
from wrt.errors import WrongShape

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def left(ask: Ask, u: Any) -> Array:
    """u @ J, one pull for each u: (*x.shape), or (k, *x.shape) for k of them."""
    arrays = ask.y.record.backend.arrays
    batch, weights = _weights(ask, u, ask.rows.shape, "u", "y", lead=True)
    seeds = arrays.spread(ask.y, ask.rows.positions, arrays.native(weights, ask.y))
    found = _reached(ask)
    if found is None:
        return arrays.zeros((*batch, *ask.x.shape), ask.x.values[0])
    refuse_if_not_holomorphic(found.ask, found.linear, Report())
    rows = [
        pull_columns(found.ask, found.linear, seeds[k : k + 1], found.linear.pull_rungs[-1])
        for k in range(weights.shape[0])
    ]
    return arrays.reshape(arrays.concat(rows, 0), (*batch, *ask.x.shape))


def right(ask: Ask, v: Any) -> Array:
    """J @ v, one push for each v: (*y.shape), or (*y.shape, k) for k of them."""
    arrays = ask.y.record.backend.arrays
    batch, weights = _weights(ask, v, ask.x.shape, "v", "x", lead=False)
    found = _reached(ask)
    if found is None:
        return arrays.zeros((*ask.rows.shape, *batch), ask.y)
    columns = arrays.native(weights, ask.x.values[0])  # (k, n)
    pushed = _certified_push(found.ask, found.linear, columns)
    if pushed is None:  # no push here: all rows, which is what it costs
        block = execute.answer(ask).array
        pushed = arrays.matmul(arrays.cast_like(columns, block), arrays.transpose(block))
    return arrays.reshape(arrays.transpose(pushed), (*ask.rows.shape, *batch))


def _certified_push(ask: Ask, linear: Linear, columns: Array) -> Array | None:
    """(k, m), or None where pushing is refused or disagrees with a plain pull."""
    arrays = ask.y.record.backend.arrays
    count = arrays.shape(columns)[0]
    for rung in linear.push_rungs:
        try:
            whole = linear.push(spread_tangents(ask, columns), rung)
        except CannotBatch:
            continue
        if whole is None:
            return None
        flat = arrays.reshape(whole, (count, -1))
        pushed = flat if ask.rows.everything else arrays.take(flat, ask.rows.positions, 1)
        if not current().certify or _agrees(ask, linear, columns, pushed):
            return pushed
    return None


def _agrees(ask: Ask, linear: Linear, columns: Array, pushed: Array) -> bool:
    """u (J v) = (u J) v for a random u, with u J from one plain pull."""
    arrays = ask.y.record.backend.arrays
    u = arrays.from_numpy(random_signs(1, ask.m, SEED), ask.y)
    seed = arrays.spread(ask.y, ask.rows.positions, u)
    row = pull_columns(ask, linear, seed, linear.pull_rungs[-1])  # (1, n)
    if row is None:
        return False
    columns = arrays.cast_like(columns, row)
    expected = arrays.matmul(row, arrays.transpose(columns))  # (1, k)
    got = arrays.matmul(arrays.cast_like(u, pushed), arrays.transpose(pushed))
    scale = max(
        arrays.largest(arrays.matmul(arrays.abs(row), arrays.transpose(arrays.abs(columns)))),
        arrays.largest(arrays.matmul(arrays.abs(arrays.cast_like(u, pushed)), arrays.transpose(arrays.abs(pushed)))),
    )
    if not np.isfinite(scale):
        return True  # not finite either way: nothing to compare
    return arrays.largest(arrays.abs(got - expected)) <= tolerance(ask) * scale or scale == 0.0


class _Found:
    """The meaning of x that a path leads to, with its linear map."""

    def __init__(self, ask: Ask, linear: Linear) -> None:
        self.ask = ask
        self.linear = linear


def _reached(ask: Ask) -> _Found | None:
    """The linear map of the question; None for proven independence, an error where nothing is known."""
    record = ask.y.record
    if not execute.is_identity(ask):
        record.ready(ask.y, ask.x)
    for side in execute.meanings(ask.x):
        narrowed = replace(ask, x=side)
        if all(map(record.has_history, side.values)) and execute.connected(narrowed):
            return _Found(narrowed, record.linear(ask.y, side.values))
    execute.raise_unless_independent(ask)
    return None


def _weights(
    ask: Ask, given: Any, shape: tuple[int, ...], letter: str, side: str, *, lead: bool
) -> tuple[tuple[int, ...], Array]:
    """The vector, or the batch of them, as (k, size); lead tells on which end the batch axis stands."""
    arrays = ask.y.record.backend.arrays
    native = arrays.native(given, ask.y if side == "y" else ask.x.values[0])
    got = arrays.shape(native)
    size = int(np.prod(shape)) if shape else 1
    if got == shape:
        return (), arrays.reshape(native, (1, size))
    if len(got) == len(shape) + 1:
        if lead and got[1:] == shape:
            return (got[0],), arrays.reshape(native, (got[0], size))
        if not lead and got[:-1] == shape:
            return (got[-1],), arrays.transpose(arrays.reshape(native, (size, got[-1])))
    product = f"{letter} @ J" if lead else f"J @ {letter}"
    many = f"({', '.join(('k', *map(str, shape)))})" if lead else f"({', '.join((*map(str, shape), 'k'))})"
    raise WrongShape(
        f"{product}: {letter} has shape {got}",
        f"J maps {tuple(ask.x.shape)} to {tuple(ask.rows.shape)}",
        f"give {letter} the shape {shape} of {side}, or {many} for k of them",
    )


def diagonal(ask: Ask, report: Report) -> Array:
    """dy_i/dx_i in y's shape; the rest is never formed, or dropped chunk by chunk."""
    if ask.m != ask.n:
        raise WrongShape(
            f"a Jacobian of {ask.m} x {ask.n} has no diagonal",
            f"y has shape {ask.rows.shape}, x has shape {ask.x.shape}",
            "ask for elements of both sides that match, for example d(y)[:n] / d(x)[:n]",
        )
    arrays = ask.y.record.backend.arrays
    found = _in_fewer_passes(ask, report)
    if found is not None:
        return arrays.reshape(found.diagonal(), ask.rows.shape)
    kept = []
    for rows, block in _row_blocks(ask, report):
        count = arrays.shape(block)[0]
        spots = np.arange(count) * ask.n + rows
        kept.append(arrays.take(arrays.reshape(block, (-1,)), spots, 0))
    if not kept:
        return arrays.zeros(ask.rows.shape, ask.x.values[0])
    return arrays.reshape(arrays.concat(kept, 0), ask.rows.shape)


def sparse(ask: Ask, report: Report) -> csr_array:
    """The nonzeros: from rows swept together where a structure shows, otherwise chunk by chunk."""
    from scipy.sparse import csr_array, vstack

    arrays = ask.y.record.backend.arrays
    found = _in_fewer_passes(ask, report)
    if isinstance(found, Passes):
        return found.sparse()
    if found is not None:
        return csr_array(arrays.numpy(found.dense()))
    blocks = [csr_array(arrays.numpy(block)) for _, block in _row_blocks(ask, report)]
    if not blocks:
        return csr_array((ask.m, ask.n))
    return csr_array(vstack(blocks, format="csr"))


def _in_fewer_passes(ask: Ask, report: Report) -> Passes | Factors | None:
    """A compressed or factored answer; None where there is none, or where not all of it is finite."""
    if not worth_planning(ask) or execute.is_identity(ask):
        return None
    record = ask.y.record
    record.ready(ask.y, ask.x)
    for side in execute.meanings(ask.x):
        if all(map(record.has_history, side.values)):
            narrowed = replace(ask, x=side)
            found = Planned(narrowed, record.linear(ask.y, side.values), report).in_fewer_passes()
            if found is not None and found.finite:
                return found
    return None


def _row_blocks(ask: Ask, report: Report) -> Iterator[tuple[Positions, Array]]:
    """The Jacobian some rows at a time, each chunk proven."""
    if execute.is_identity(ask):
        yield np.arange(ask.m), execute.answer(ask).array
        return
    arrays = ask.y.record.backend.arrays
    found = _reached(ask)
    size = chunk_size(ask)
    for start in range(0, ask.m, size):
        rows = np.arange(start, min(start + size, ask.m))
        if found is None:
            yield rows, arrays.zeros((len(rows), ask.n), ask.x.values[0])
            continue
        some = replace(found.ask, rows=Elements.at(ask.y.shape, ask.rows.positions[rows]))
        swept = sweep_direct(some, found.linear, choose(some, can_push=False), report)
        if swept is None:
            yield rows, arrays.zeros((len(rows), ask.n), ask.x.values[0])
        elif swept.finite:
            yield rows, swept.array
        else:
            yield rows, repair.non_finite(some, found.linear, swept.array, swept.way, report)
