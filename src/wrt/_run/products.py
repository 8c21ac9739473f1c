"""Products with the Jacobian, its diagonal and its nonzeros, none of which need all of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Elements, Positions
from wrt._core.plan import Compressed
from wrt._core.protocol import Array, CannotBatch, Linear, NotForThis, random_signs
from wrt._core.report import Certificate, Report, Step
from wrt._core.value import Value
from wrt._planner import warm
from wrt._planner.choose import choose
from wrt._planner.foresee import FEWEST
from wrt._run import execute, repair, same
from wrt._run.again import PASSES, again
from wrt._run.at_once import trusted
from wrt._run.certify import SEED, compare, passes_per_row, seed_of, tolerance
from wrt._run.chunk import chunk_size
from wrt._run.columns import pull_columns, spread_tangents
from wrt._run.complex import refuse_if_not_holomorphic
from wrt._run.compressed import Passes
from wrt._run.direct import set_up, sweep_direct
from wrt._run.factored import Factors
from wrt._run.heap import Heap
from wrt._run.memory import SMALL, Growing, answer_bytes
from wrt._run.options import current
from wrt._run.planned import Planned, sifted_key, worth_planning
from wrt._run.straight import straight
from wrt._run.sweeps import Sweeps
from wrt._run.tally import IN_THE_BATCH
from wrt.errors import WrongShape

if TYPE_CHECKING:
    from scipy.sparse import csr_array

TOGETHER = 8  # products from the left that go in one batch; fewer are quicker one by one, which needs no proof
BOTH = 2  # the pieces stand beside the matrix that they are joined to


def left(ask: Ask, u: Any, report: Report) -> Array:
    """u @ J, one pull for each u: (*x.shape), or (k, *x.shape) for k of them."""
    arrays = ask.y.record.backend.arrays
    batch, weights = _weights(ask, u, ask.rows.shape, "u", "y", lead=True)
    if execute.is_identity(ask):
        same.note(report)
        return arrays.reshape(same.product(ask, weights, "pull"), (*batch, *ask.x.shape))
    weights = arrays.native(weights, ask.y)
    for some, linear in _maps(ask):
        rows = _together(some, linear, weights, report) if arrays.shape(weights)[0] >= TOGETHER else None
        if rows is None:
            rows = _one_by_one(some, linear, weights, report)
        if rows is not None:
            report.strategy, report.because = "direct", "a product from the left is a pull"
            refuse_if_not_holomorphic(some, linear, report)
            return arrays.reshape(rows, (*batch, *ask.x.shape))
    return _independent(ask, (*batch, *ask.x.shape), ask.x.values[0], report)


def _one_by_one(ask: Ask, linear: Linear, weights: Array, report: Report) -> Array | None:
    """(k, m) -> (k, n), each by the engine's own unbatched pull; None where no path leads to x."""
    arrays = ask.y.record.backend.arrays
    rung, seeds, count = linear.pull_rungs[-1], seed_of(ask, weights), arrays.shape(weights)[0]
    rows = [pull_columns(ask, linear, seeds[k : k + 1], rung) for k in range(count)]
    if not rows or rows[0] is None:
        return None
    report.steps.append(Step("u @ J", "pull", rung, count * passes_per_row(ask), count * passes_per_row(ask)))
    report.certificate = Certificate("engine")
    return arrays.concat(rows, 0)


def _together(ask: Ask, linear: Linear, weights: Array, report: Report) -> Array | None:
    """The same in batches, proven by the pull of a random combination of them; None where it is not plainly right."""
    arrays = ask.y.record.backend.arrays
    if any(map(arrays.is_complex, (ask.y, *ask.x.values))):
        return None
    proven, joined = current().certify, trusted(ask.y)
    probe = arrays.from_numpy(random_signs(1, arrays.shape(weights)[0], SEED), ask.y)  # (1, k)
    mixed = arrays.matmul(probe, weights)  # (1, m)
    sweeps = Sweeps(ask, linear, report)
    together = arrays.concat([weights, mixed], 0) if proven and joined else weights
    rows = sweeps.sweep(together, "u @ J" + ", and the probe" * (proven and joined))
    if rows is None:
        return None
    if not proven:
        report.certificate = Certificate("none")
        return rows
    if joined:
        rows, expected = rows[:-1], rows[-1:]
    else:
        expected = sweeps.sweep(mixed, "certificate", plain=True)
    held = compare(ask, probe, rows, expected)
    if held and (held.finite or arrays.all_finite(rows)):
        report.certificate = replace(held, probe=IN_THE_BATCH) if joined else held
        return rows
    report.fallbacks.append(f"together: the certificate disagreed ({held})")
    return None


def right(ask: Ask, v: Any, report: Report) -> Array:
    """J @ v, one push for each v: (*y.shape), or (*y.shape, k) for k of them."""
    arrays = ask.y.record.backend.arrays
    batch, weights = _weights(ask, v, ask.x.shape, "v", "x", lead=False)
    columns = arrays.native(weights, ask.x.values[0])  # (k, n)
    shape = (*ask.rows.shape, *batch)
    if execute.is_identity(ask):
        same.note(report)
        return arrays.reshape(arrays.transpose(same.product(ask, columns, "push")), shape)
    try:
        for some, linear in _maps(ask):
            pushed = _certified_push(some, linear, columns, report)
            if pushed is not None:
                return arrays.reshape(arrays.transpose(pushed), shape)
    except CannotBatch:
        pass  # no push here: all rows, which is what it costs
    else:
        return _independent(ask, shape, ask.y, report)
    block = _all_of_it(ask, report)
    return arrays.reshape(arrays.matmul(block, arrays.transpose(arrays.cast_like(columns, block))), shape)


def _all_of_it(ask: Ask, report: Report) -> Array:
    found = execute.answer(ask)
    report.take(found.report)
    return found.array


def small_block(ask: Ask, report: Report) -> Array | None:
    """All of J, (m, n), where it may stand beside what is made of it: no other way of sweeping it is quicker.

    None where it is large: then it is swept in chunks, of which little is kept.
    """
    if answer_bytes(ask) >= SMALL or current().memory is not None:
        return None
    return _all_of_it(ask, report)


def _independent(ask: Ask, shape: tuple[int, ...], like: Value, report: Report) -> Array:
    """Zeros for proven independence, an error where nothing is known."""
    execute.raise_unless_independent(ask)
    report.strategy, report.because = "none needed", "y does not depend on x: exact zeros"
    report.certificate = Certificate("exact", words=report.because)
    return ask.y.record.backend.arrays.zeros(shape, like)


def _maps(ask: Ask) -> Iterator[tuple[Ask, Linear]]:
    """The linear map of x, then that of what x stands for if nothing leads to it."""
    record = ask.y.record
    record.ready(ask.y, ask.x)
    for side in execute.meanings(ask.x):
        if all(map(record.has_history, side.values)):
            yield replace(ask, x=side), record.linear(ask.y, side.values)


def _certified_push(ask: Ask, linear: Linear, columns: Array, report: Report) -> Array | None:
    """(k, m); None where no path leads to x. Raises CannotBatch where pushing is refused or disagrees with a pull."""
    arrays = ask.y.record.backend.arrays
    count = arrays.shape(columns)[0]
    for rung in linear.push_rungs:
        try:
            whole = linear.push(spread_tangents(ask, columns), rung)
        except NotForThis:
            continue
        except CannotBatch as refusal:
            report.fallbacks.append(f"{rung}: {refusal}")
            continue
        if whole is None:
            return None
        flat = arrays.reshape(whole, (count, -1))
        pushed = flat if ask.rows.everything else arrays.take(flat, ask.rows.positions, 1)
        report.strategy, report.because = "direct", "a product from the right is a push"
        report.steps.append(Step("J @ v", "push", rung, count, count if "one by one" in rung else 1))
        report.steps.extend(set_up(linear))
        report.certificate = _agrees(ask, linear, columns, pushed, report) if current().certify else Certificate("none")
        if report.certificate or report.certificate.kind == "none":
            return pushed
        report.fallbacks.append(f"{rung}: the certificate disagreed ({report.certificate})")
    raise CannotBatch("no push holds")


def _agrees(ask: Ask, linear: Linear, columns: Array, pushed: Array, report: Report) -> Certificate:
    """u (J v) = (u J) v for a random u, with u J from one plain pull."""
    arrays = ask.y.record.backend.arrays
    u = arrays.from_numpy(random_signs(1, ask.m, SEED), ask.y)
    seed = arrays.spread(ask.y, ask.rows.positions, u)
    row = pull_columns(ask, linear, seed, linear.pull_rungs[-1])  # (1, n)
    report.steps.append(Step("certificate", "pull", linear.pull_rungs[-1], passes_per_row(ask), passes_per_row(ask)))
    if row is None:
        return Certificate("probe", 1.0, tolerance(ask))
    columns = arrays.cast_like(columns, row)
    expected = arrays.matmul(row, arrays.transpose(columns))  # (1, k)
    got = arrays.matmul(arrays.cast_like(u, pushed), arrays.transpose(pushed))
    scale = max(
        arrays.largest(arrays.matmul(arrays.abs(row), arrays.transpose(arrays.abs(columns)))),
        arrays.largest(arrays.matmul(arrays.abs(arrays.cast_like(u, pushed)), arrays.transpose(arrays.abs(pushed)))),
    )
    if not np.isfinite(scale):
        return Certificate("probe", 0.0, np.inf, "not finite either way: nothing to compare")
    residual = arrays.largest(arrays.abs(got - expected)) / scale if scale else 0.0
    return Certificate("probe", residual, tolerance(ask))


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
    found = in_fewer_passes(ask, report)
    if found is not None:
        return arrays.reshape(found.diagonal(), ask.rows.shape)
    if execute.is_identity(ask):
        same.note(report)
        return arrays.reshape(same.diagonal(ask), ask.rows.shape)
    whole = small_block(ask, report)
    if whole is not None:
        return arrays.reshape(arrays.take(arrays.reshape(whole, (-1,)), np.arange(ask.m) * (ask.n + 1), 0), ask.rows.shape)
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
    found = in_fewer_passes(ask, report, sifted=True)
    if isinstance(found, Passes):
        return found.sparse()
    if execute.is_identity(ask):
        same.note(report)
        return same.sparse(ask)
    from scipy.sparse import csr_array, vstack

    arrays = ask.y.record.backend.arrays
    if found is not None:
        return csr_array(arrays.numpy(found.dense()))
    whole = small_block(ask, report)
    if whole is not None:
        return csr_array(arrays.numpy(whole))
    blocks, growing, heap = [], Growing(ask, f"the nonzeros of {ask.m} x {ask.n} entries"), Heap(ask)
    for rows, block in _row_blocks(ask, report):
        blocks.append(csr_array(arrays.numpy(block)))
        growing.add(BOTH * blocks[-1].nnz * (blocks[-1].data.itemsize + 4), int(rows[-1]) + 1, ask.m)
        heap.look()
    if not blocks:
        return csr_array((ask.m, ask.n))
    return csr_array(vstack(blocks, format="csr"))


def in_fewer_passes(ask: Ask, report: Report, *, sifted: bool = False) -> Passes | Factors | None:
    """A compressed or factored answer; None where there is none, or where not all of it is finite.

    `sifted`: all of J would have to be looked through for its nonzeros otherwise.
    """
    known = again(ask.y, ask.rows, ask.x, PASSES)
    if known is not None:
        report.take(known.report)
        found: Passes = known.shaped
        return found
    plan = warm.recall(warm.key_of(ask)) if min(ask.m, ask.n) >= FEWEST else None
    if sifted and not isinstance(plan, Compressed):
        plan = warm.recall(sifted_key(ask))
    if isinstance(plan, Compressed) and (passes := straight(ask, plan, report)) is not None:
        return passes
    if not worth_planning(ask) or execute.is_identity(ask):
        return None
    record = ask.y.record
    record.ready(ask.y, ask.x)
    for side in execute.meanings(ask.x):
        if all(map(record.has_history, side.values)):
            narrowed = ask if side is ask.x else replace(ask, x=side)
            planned = Planned(narrowed, record.linear(ask.y, side.values), report, sifted=sifted).in_fewer_passes()
            if planned is not None and planned.finite:
                return planned
    return None


def _row_blocks(ask: Ask, report: Report) -> Iterator[tuple[Positions, Array]]:
    """The Jacobian some rows at a time, each chunk proven."""
    if ask.m == 0 or ask.n == 0:
        return
    for some, linear in _maps(ask):
        blocks = _blocks_of(some, linear, report)
        first = next(blocks, None)
        if first is not None:
            yield first
            yield from blocks
            report.steps.extend(set_up(linear))
            return
    execute.raise_unless_independent(ask)
    for rows in _chunks(ask):
        yield rows, ask.y.record.backend.arrays.zeros((len(rows), ask.n), ask.x.values[0])


def _blocks_of(ask: Ask, linear: Linear, report: Report) -> Iterator[tuple[Positions, Array]]:
    """Nothing where no path leads to x."""
    for rows in _chunks(ask):
        some = replace(ask, rows=Elements.at(ask.y.shape, ask.rows.positions[rows]))
        swept = sweep_direct(some, linear, choose(some, can_push=False), report)
        if swept is None:
            return
        finite = swept.finite
        yield rows, swept.array if finite else repair.non_finite(some, linear, swept.array, swept.way, report)


def _chunks(ask: Ask) -> Iterator[Positions]:
    size = chunk_size(ask)
    for start in range(0, ask.m, size):
        yield np.arange(start, min(start + size, ask.m))
