"""Rows that share no entry are swept together; what comes back is told apart, and proven against one plain pull."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.pattern import NOBODY, Tables
from wrt._core.plan import Compressed
from wrt._core.protocol import Array, CannotBatch
from wrt._core.report import Certificate
from wrt._core.value import Value
from wrt._run.at_once import SMALLEST
from wrt._run.budget import SMALL, answer_bytes
from wrt._run.certify import probe_of, seed_of, signs, verdict
from wrt._run.heap import give_back
from wrt._run.mended import Extras, mend, push_alone
from wrt._run.sweeps import FEW, Sweeps
from wrt._run.tally import IN_THE_BATCH

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SLACK = 8  # roundings that each operation may leave; a guess is held to a tighter bound than the engine, and a false
TYPICAL = 16  # alarm only costs time. Operations of a program that nobody counted.
TABLE = 2**16  # numbers up to which a sum of tables travels sooner than its parts
KEEP = 2**26  # bytes of seeds and indices that a warm plan may hold


@dataclass(slots=True)
class Passes:
    """What the sweeps of a compressed plan returned, (passes, n) or (passes, m), and the evidence for it."""

    ask: Ask
    plan: Compressed
    array: Array
    certificate: Certificate
    extras: Extras | None = None
    mended: str = ""
    whole: Array | None = None
    blank: Array | None = None
    """Zeros for all of the Jacobian, flat, where they were made ahead."""

    @property
    def finite(self) -> bool:
        return self.certificate.finite or self.ask.y.record.backend.arrays.all_finite(self.array)

    def dense(self) -> Array:
        """The (m, n) Jacobian, every entry where it belongs and exact zeros elsewhere."""
        if self.whole is not None:
            return self.whole
        give_back(self.ask)
        arrays, like = self.ask.y.record.backend.arrays, self.ask.x.values[0]
        values = arrays.reshape(self.array, (-1,))
        if self.blank is None:
            found = self._laid()
            if found is None:
                found = arrays.scatter((self.ask.m, self.ask.n), places_of(self.ask, self.plan), values, like)
        else:
            written = arrays.place(self.blank, (places_of(self.ask, self.plan),), arrays.cast(values, like))
            found, self.blank = arrays.reshape(written, (self.ask.m, self.ask.n)), None
        if self.extras is None:
            return found
        return arrays.place(found, (self.extras.rows, self.extras.columns), arrays.from_numpy(self.extras.values, like))

    def _laid(self) -> Array | None:
        """The same by one strided copy; None where entries do not lie in equal steps (see `Compression.strides`)."""
        lay = getattr(self.ask.y.record.backend.arrays, "lay", None)
        if lay is None:
            return None
        if "strides" not in self.plan.kept:
            self.plan.kept["strides"] = self.plan.compression.strides
        if (found := self.plan.kept["strides"]) is None:
            return None
        values = self.ask.y.record.backend.arrays.reshape(self.array, self.plan.compression.box)
        laid: Array = lay((self.ask.m, self.ask.n), values, *found, self.ask.x.values[0].dtype)
        return laid

    def sparse(self) -> csr_array:
        """The nonzeros; the dense Jacobian is never formed."""
        order, whole = self._compressed_rows()
        found = _filled(self.plan, order, whole, self.ask.y.record.backend.arrays.numpy(self.array).reshape(-1))
        return found if self.extras is None else self.extras.added_to(found)

    def diagonal(self) -> Array:
        """dy_i/dx_i, flat."""
        arrays, like = self.ask.y.record.backend.arrays, self.ask.x.values[0]
        if "diagonal" not in self.plan.kept:
            slots, places = self.plan.compression.flat
            chosen = places % (self.ask.n + 1) == 0
            lines = places[chosen] // (self.ask.n + 1)
            self.plan.kept["diagonal"] = arrays.index(slots[chosen], like), arrays.index(lines, like)
        slots, lines = self.plan.kept["diagonal"]
        values = arrays.gather(arrays.reshape(self.array, (-1,)), slots)
        found = arrays.scatter((self.ask.m,), lines, values, like)
        if self.extras is None or not (own := self.extras.rows == self.extras.columns).any():
            return found
        return arrays.place(found, (self.extras.rows[own],), arrays.from_numpy(self.extras.values[own], like))

    def _compressed_rows(self) -> tuple[Positions, csr_array]:
        """Where each entry of the pattern stands in the passes, row by row, and the pattern itself."""
        kept = self.plan.kept
        if "rows" not in kept:
            from scipy.sparse import coo_array

            slots, places = self.plan.compression.flat
            found = coo_array((slots, np.divmod(places, self.ask.n)), shape=(self.ask.m, self.ask.n)).tocsr()
            found.sort_indices()
            kept["rows"] = found.data, found
        order, whole = kept["rows"]
        return order, whole


def _filled(plan: Compressed, order: Positions, whole: csr_array, flat: npt.NDArray[Any]) -> csr_array:
    """These entries of the pattern, without those that are zero; which ones are is often the same as last time."""
    alive, dead, pattern = plan.kept.get("alive", (order, order[:0], whole))
    values = flat.take(alive)
    if values.all() and not flat.take(dead).any():
        return _like(pattern, values)
    values = flat.take(order)
    there = values != 0
    thinner = _like(whole, there.copy())
    thinner.eliminate_zeros()
    if order.nbytes < KEEP:
        plan.kept["alive"] = order[there], order[~there], thinner
    return _like(thinner, values[there])


def _like(pattern: csr_array, values: npt.NDArray[Any]) -> csr_array:
    """A matrix of this pattern, in memory of its own; scipy would look through all of it once more."""
    made = copy(pattern)
    made.data, made.indices, made.indptr = values, pattern.indices.copy(), pattern.indptr.copy()
    return made


def places_of(ask: Ask, plan: Compressed) -> Array:
    """Where each slot of the passes belongs in the flat (m, n)."""
    if "places" not in plan.kept:
        plan.kept["places"] = _written_out(ask, plan.compression.places, ask.x.values[0])
    return plan.kept["places"]


def _written_out(ask: Ask, tables: Tables, like: Value) -> Array:
    """The sum of tables as one flat index, added up where the array will live."""
    summed = _summed(ask, tables, like)
    return summed.reshape(-1) if isinstance(summed, np.ndarray) else ask.y.record.backend.arrays.reshape(summed, (-1,))


def _summed(ask: Ask, tables: Tables, like: Value) -> Array:
    """The same in the shape that the tables broadcast to."""
    arrays = ask.y.record.backend.arrays
    if math.prod(np.broadcast_shapes(*(table.shape for table in tables))) <= TABLE:
        return arrays.index(np.asarray(sum(tables)), like)
    sent = arrays.index(np.concatenate([table.reshape(-1) for table in tables]), like)  # all in one transfer
    if isinstance(sent, np.ndarray):
        return np.asarray(sum(tables))
    ends = np.cumsum([0, *(table.size for table in tables)]).tolist()
    parts = [arrays.reshape(sent[a:b], table.shape) for (a, b), table in zip(pairwise(ends), tables, strict=True)]
    found = parts[0]
    for part in parts[1:]:
        found = found + part
    return found


def sweep_compressed(
    ask: Ask,
    plan: Compressed,
    sweeps: Sweeps,
    *,
    warm: bool = False,
    expected: Array | None = None,
    operations: int = TYPICAL,
    dense: bool = False,
) -> Passes | None:
    """Run the passes of the plan; None where nothing connects, or where no rung takes them.

    A guess is always proven, also where the user switched certificates off: without proof it would be just a guess.
    `expected` is what the engine said of the probe already; `operations` on the way from x to y each leave some roundoff.
    Where all of a `dense` matrix is wanted from a device, it fills it with zeros while the host is busy with the passes.
    """
    blank = ask.y.record.backend.arrays.zeros((ask.m * ask.n,), ask.x.values[0]) if dense and ask.accelerated else None
    joined = expected is not None or (warm and plan.passes > FEW and plan.way == "pull")
    try:
        if warm and plan.passes > FEW and plan.way == "pull":  # the probe travels as one more row of the batch
            batch = sweeps.sweep(_seeds_and_probe(ask, plan), "rows together, and the probe", laid=True)
            found, expected = (None, None) if batch is None else (batch[:-1], batch[-1:])
        elif plan.way == "pull":
            found = sweeps.sweep(seeds_of(ask, plan), "rows together")
            expected = sweeps.sweep(probe_of(ask), "certificate", plain=True) if expected is None else expected
        else:
            expected = sweeps.set_up_push(probe_of(ask)) if expected is None else expected
            found = sweeps.sweep(seeds_of(ask, plan), "columns together", "push")
            expected = sweeps.sweep(probe_of(ask), "certificate", plain=True) if expected is None else expected
    except CannotBatch:
        return None
    if found is None or expected is None:
        return None
    if plan.columns is not None:
        return _with_columns(ask, plan, found, expected, sweeps, guess_tolerance(ask, operations))
    held = _compare(ask, plan, found, expected, guess_tolerance(ask, operations))
    passes = _proven(ask, plan, found, expected, sweeps, held)
    passes.blank = blank
    if joined:
        passes.certificate = replace(passes.certificate, probe=IN_THE_BATCH)
    if not warm:
        _slim(ask, plan)
    return passes


def _with_columns(
    ask: Ask, plan: Compressed, found: Array, expected: Array, sweeps: Sweeps, tolerance: float
) -> Passes | None:
    """The passes, and beside them the columns that are pushed one by one: what the passes say there means nothing."""
    assert plan.columns is not None
    arrays, like = ask.y.record.backend.arrays, ask.x.values[0]
    try:
        alone = push_alone(ask, sweeps, plan.columns, "columns that meet many rows")
    except CannotBatch:
        return None
    blank = arrays.zeros((plan.compression.passes, len(plan.columns)), like)
    found = arrays.place(found, (slice(None), plan.columns), blank)
    rest = arrays.numpy(expected).reshape(-1).copy()
    said, got = rest[plan.columns], alone @ signs(ask.m)[0]
    scale = max(float(np.abs(rest).max()), float((np.abs(alone) @ np.abs(signs(ask.m)[0])).max()))
    rest[plan.columns] = 0
    held = _compare(ask, plan, found, arrays.from_numpy(rest[None], like), tolerance)
    off = float(np.abs(got - said).max() / scale) if scale else 0.0
    worst = held.residual if held.residual >= off or math.isnan(held.residual) else off
    line, row = np.nonzero(alone)
    extras = Extras(row, plan.columns[line], alone[line, row])
    return Passes(ask, plan, found, replace(held, residual=worst, finite=False), extras)


def _proven(
    ask: Ask, plan: Compressed, found: Array, expected: Array, sweeps: Sweeps, held: Certificate
) -> Passes:
    better = None if held.passed else mend(ask, plan, found, expected, sweeps, held)
    if better is None:
        return Passes(ask, plan, found, held)
    right, extras, mended, words = better
    return Passes(ask, plan, right, mended, extras, words)


def seeds_of(ask: Ask, plan: Compressed) -> Array:
    """(passes, m) for a pull: a one at every row of a pass."""
    if "seeds" in plan.kept:
        return plan.kept["seeds"]
    arrays, compression = ask.y.record.backend.arrays, plan.compression
    like = ask.y if plan.way == "pull" else ask.x.values[0]
    count = compression.count
    if len(compression.colors) == 1:
        lines = np.flatnonzero(compression.colors[0] != NOBODY)
        spots = arrays.index(compression.colors[0].reshape(-1)[lines] * count + lines, like)
    else:
        along = np.arange(count).reshape(compression.lines)
        spots = _written_out(ask, (*(table * count for table in compression.colors), along), like)
    ones = arrays.zeros(arrays.shape(spots), like) + 1
    seeds = arrays.scatter((plan.compression.passes, count), spots, ones, like)
    if plan.compression.passes * count * arrays.itemsize(like) < KEEP:
        plan.kept["seeds"] = seeds
    return seeds


def _seeds_and_probe(ask: Ask, plan: Compressed) -> Array:
    """(passes + 1, *y.shape), kept for the next time; made anew once somebody's hook has written to it."""
    arrays = ask.y.record.backend.arrays
    mark = getattr(arrays, "mark", lambda array: 0)  # elsewhere nobody can write to an array
    batch, marked = plan.kept.get("batch", (None, None))
    if batch is None or mark(batch) != marked:
        plan.kept.pop("seeds", None)
        batch = seed_of(ask, arrays.concat([seeds_of(ask, plan), probe_of(ask)], 0))
        small = (plan.compression.passes + 1) * ask.y.size * arrays.itemsize(ask.y) < KEEP
        if small and (marked := mark(batch)) is not None:
            plan.kept["batch"] = batch, marked
            plan.kept.pop("seeds", None)
    return batch


def _weights(ask: Ask, plan: Compressed) -> Array:
    """The probe's weight of the row behind each slot of the passes, 0 where nobody owns it; broadcasts to the box."""
    if "weights" not in plan.kept:
        arrays, like, compression = ask.y.record.backend.arrays, ask.x.values[0], plan.compression
        rows = _summed(ask, compression.owners if plan.way == "pull" else (compression.along,), like)
        weights = arrays.gather(arrays.reshape(probe_of(ask, like), (-1,)), arrays.reshape(rows, (-1,)))
        weights = arrays.reshape(weights, arrays.shape(rows))
        for mask in compression.owned:
            weights = weights * arrays.from_numpy(mask, like)
        plan.kept["weights"] = weights
        nobody = arrays.zeros(compression.box, like) == weights  # no weight of a probe is zero by itself
        plan.kept["free"] = arrays.found(nobody) if compression.owned else None
        if plan.way == "push":
            plan.kept["columns"] = _written_out(ask, (*compression.owners, compression.along * 0), like)
    return plan.kept["weights"]


def _compare(ask: Ask, plan: Compressed, found: Array, expected: Array, tolerance: float) -> Certificate:
    """The probe two ways, and exact zeros in every slot that nobody owns."""
    arrays, compression = ask.y.record.backend.arrays, plan.compression
    settled = _at_a_glance(ask, plan, found, expected, tolerance)
    if settled is not None:
        return settled
    weighted = _weights(ask, plan) * arrays.reshape(found, compression.box)
    weighted = arrays.reshape(weighted, (compression.passes, compression.width))
    free = plan.kept["free"]
    stray = None if free is None else arrays.gather(arrays.reshape(found, (-1,)), free)
    got, size = (_by_column(ask, plan, one) for one in (weighted, arrays.abs(weighted)))
    expected = arrays.reshape(expected, arrays.shape(got))
    held = verdict(ask, got, expected, size, stray)
    residual = math.inf if held.words else held.residual
    return Certificate("probe", residual, tolerance, held.words, finite=held.finite)


def _at_a_glance(ask: Ask, plan: Compressed, found: Array, expected: Array, tolerance: float) -> Certificate | None:
    """The same in NumPy, where that sees the numbers: much quicker for the few that most passes return.

    The probe is held to a bound that is never larger than the sum it is compared with otherwise. None where that does
    not settle it: an entry that is not finite or outside the pattern, a doubtful residual.
    """
    look = getattr(ask.y.record.backend.arrays, "at_hand", None)
    numbers, said = (None, None) if look is None else (look(found), look(expected))
    if numbers is None or said is None:
        return None
    weights, free, columns = _weights_at_hand(ask, plan, numbers)
    least = SMALLEST * math.sqrt(np.vdot(numbers, numbers) / ask.n)
    if not 0.0 < least < math.inf or (len(free) and numbers.reshape(-1)[free].any()):
        return None
    weighted = weights * numbers
    got = weighted.sum(0) if columns is None else np.bincount(columns, weighted.reshape(-1), ask.n)
    residual = float(np.abs(got - said.reshape(-1)).max()) / least
    return Certificate("probe", residual, tolerance, finite=True) if residual <= tolerance else None


def _weights_at_hand(ask: Ask, plan: Compressed, numbers: npt.NDArray[Any]) -> Any:
    """The probe's weight behind each slot of the passes, the slots that nobody owns, the columns of what is pushed."""
    if "at hand" not in plan.kept:
        compression = plan.compression
        rows = sum(compression.owners) if plan.way == "pull" else compression.along
        weights = np.broadcast_to(signs(ask.m)[0][rows], compression.box).astype(numbers.dtype)
        for mask in compression.owned:
            weights = weights * mask
        columns = np.broadcast_to(sum(compression.owners), compression.box).reshape(-1) if plan.way == "push" else None
        plan.kept["at hand"] = weights.reshape(numbers.shape), compression.free, columns
    return plan.kept["at hand"]


def _slim(ask: Ask, plan: Compressed) -> None:
    """Indices that only the proof needed stay for the next time, but not beside a large answer that they rival."""
    if answer_bytes(ask) >= SMALL and 8 * plan.compression.passes * plan.compression.width > answer_bytes(ask) // 16:
        for name in ("seeds", "batch", "columns", "weights", "free", "at hand"):
            plan.kept.pop(name, None)


def _by_column(ask: Ask, plan: Compressed, weighted: Array) -> Array:
    """Sums of the entries of each column of the Jacobian."""
    arrays = ask.y.record.backend.arrays
    if plan.way == "pull":
        return arrays.total(weighted, 0)
    return arrays.sum_at(ask.n, plan.kept["columns"], arrays.reshape(weighted, (-1,)))


def guess_tolerance(ask: Ask, operations: int = TYPICAL) -> float:
    """What a right guess may differ by: roundoff of one pass through so many operations, not of a wrong entry."""
    epsilon = max(ask.y.record.backend.arrays.precision(v) for v in (ask.y, *ask.x.values))
    return min(0.05, epsilon * SLACK * (TYPICAL + operations))
