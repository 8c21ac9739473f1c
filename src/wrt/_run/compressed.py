"""Rows that share no entry are swept together; what comes back is told apart, and proven against one plain pull."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.pattern import NOBODY, Tables
from wrt._core.plan import Compressed
from wrt._core.protocol import Array, CannotBatch
from wrt._core.report import Certificate
from wrt._run.at_once import ALONE
from wrt._run.budget import SMALL, answer_bytes
from wrt._run.certify import probe_of, seed_of, signs
from wrt._run.heap import give_back
from wrt._run.mended import Extras, mend, push_alone
from wrt._run.options import current
from wrt._run.proof import COARSE, KEPT, as_a_whole, compare
from wrt._run.rows import KEEP, filled, filled_there
from wrt._run.sweeps import FEW, Sweeps
from wrt._run.tables import written_out
from wrt._run.tally import IN_THE_BATCH

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SLACK = 8  # roundings that each operation may leave; a guess is held to a tighter bound than the engine, and a false
TYPICAL = 16  # alarm only costs time. Operations of a program that nobody counted.
TOGETHER = "rows together, and the probe"
STRAIGHT = "straight"
"""Kept by a plan whose seeds and probe went in one call to all of x, and held: `straight` may do so again."""
FEW_ONES = 2**18  # numbers in the seeds up to which the host writes them, also for a device: they travel in one piece


@dataclass(slots=True)
class Passes:
    """What the sweeps of a compressed plan returned, (passes, n) or (passes, m), and the evidence for it."""

    ask: Ask
    plan: Compressed
    found: Array
    """As it came back: the probe may be one more row."""
    certificate: Certificate
    extras: Extras | None = None
    mended: str = ""
    whole: Array | None = None
    blank: Array | None = None
    """Zeros for all of the Jacobian, flat, where they were made ahead."""
    numbers: npt.NDArray[Any] | None = None
    """What was found as NumPy sees it, where somebody has looked."""

    @property
    def array(self) -> Array:
        """The passes alone."""
        passes = self.plan.compression.passes
        return self.found if len(self.found) == passes else self.found[:passes]

    @property
    def finite(self) -> bool:
        return self.certificate.finite or self.ask.y.record.backend.arrays.all_finite(self.array)

    def dense(self) -> Array:
        """The (m, n) Jacobian, every entry where it belongs and exact zeros elsewhere."""
        if self.whole is not None:
            return self.whole
        give_back(self.ask)
        arrays, like = self.ask.y.record.backend.arrays, self.ask.x.values[0]
        found = self._laid()
        if found is None:
            found = self._placed()
        self.blank = None
        if self.extras is None:
            return found
        return arrays.place(found, (self.extras.rows, self.extras.columns), arrays.from_numpy(self.extras.values, like))

    def _placed(self) -> Array:
        """Every slot at its place in the Jacobian, one by one."""
        arrays, like, shape = self.ask.y.record.backend.arrays, self.ask.x.values[0], (self.ask.m, self.ask.n)
        values, places = arrays.reshape(self.array, (-1,)), places_of(self.ask, self.plan)
        if self.blank is None:
            return arrays.scatter(shape, places, values, like)
        return arrays.reshape(arrays.place(self.blank, (places,), arrays.cast(values, like)), shape)

    def _laid(self) -> Array | None:
        """The same by one strided copy; None where entries do not lie in equal steps (see `Compression.strides`)."""
        arrays: Any = self.ask.y.record.backend.arrays
        if not hasattr(arrays, "lay"):
            return None
        if "strides" not in self.plan.kept:
            self.plan.kept["strides"] = self.plan.compression.strides
        if (found := self.plan.kept["strides"]) is None:
            return None
        values, shape = arrays.reshape(self.array, self.plan.compression.box), (self.ask.m, self.ask.n)
        if self.blank is None:
            return arrays.lay(shape, values, *found, self.ask.x.values[0].dtype)
        return arrays.add_laid(arrays.reshape(self.blank, shape), values, *found)

    def sparse(self) -> csr_array:
        """The nonzeros; the dense Jacobian is never formed."""
        arrays: Any = self.ask.y.record.backend.arrays
        numbers, found = self.numbers, None
        if numbers is None and hasattr(arrays, "at_hand") and (brought := arrays.at_hand(self.found)) is not None:
            (numbers,) = brought
        if numbers is None and self.ask.accelerated and hasattr(arrays, "picked"):
            found = filled_there(self.plan, self.ask, arrays.reshape(self.array, (-1,)))
        if found is None:
            found = filled(self.plan, (arrays.numpy(self.found) if numbers is None else numbers).reshape(-1))
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


def places_of(ask: Ask, plan: Compressed) -> Array:
    """Where each slot of the passes belongs in the flat (m, n)."""
    if "places" not in plan.kept:
        arrays, like, lines = ask.y.record.backend.arrays, ask.x.values[0], plan.kept.pop("lines", None)
        if lines is None:
            plan.kept["places"] = written_out(ask, plan.compression.places, like)
        else:  # the proof has added them up already
            plan.kept["places"] = arrays.reshape(lines * ask.n + arrays.index(plan.compression.along, like), (-1,))
    return plan.kept["places"]


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
    blank = blank_for(ask) if dense else None
    joined = warm and plan.passes > FEW and plan.way == "pull"  # the probe travels as one more row of the batch
    probe = IN_THE_BATCH if joined or expected is not None else ALONE
    try:
        if joined:
            kept = plan.kept if current().replay else None
            found, expected = sweeps.together(seeds_and_probe(ask, plan), TOGETHER, kept), None
        else:
            found, expected = _swept(ask, plan, sweeps, expected)
    except CannotBatch:
        return None
    if found is None or (expected is None and not joined):
        return None
    tolerance = allowed(ask, plan, operations)
    if plan.columns is not None:
        found, expected = (found[:-1], found[-1:]) if joined else (found, expected)
        return _with_columns(ask, plan, found, expected, sweeps, tolerance)
    held = compare(ask, plan, found, expected, tolerance, probe)
    made = Passes(ask, plan, found, held)
    if not held.passed:
        made = _mended(made, found[-1:] if joined else expected, sweeps)
        plan.kept.pop(STRAIGHT, None)
    elif joined and sweeps.always_together(plan.passes + 1):
        plan.kept[STRAIGHT] = True
    made.blank = blank
    if not warm:
        _slim(ask, plan)
    return made


def blank_for(ask: Ask) -> Array | None:
    """All of the Jacobian as flat zeros, where a device fills them while the host is busy with the passes."""
    return ask.y.record.backend.arrays.zeros((ask.m * ask.n,), ask.x.values[0]) if ask.accelerated else None


def _swept(ask: Ask, plan: Compressed, sweeps: Sweeps, expected: Array | None) -> tuple[Array | None, Array | None]:
    """The passes, and what the engine says of the probe, by a pull of its own where nobody has asked for it yet."""
    if plan.way == "pull":
        found = sweeps.together(seed_of(ask, seeds_of(ask, plan)), "rows together")
    else:
        expected = sweeps.set_up_push(probe_of(ask)) if expected is None else expected
        found = sweeps.sweep(seeds_of(ask, plan), "columns together", "push")
    return found, sweeps.sweep(probe_of(ask), "certificate", plain=True) if expected is None else expected


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
    held = compare(ask, plan, found, arrays.from_numpy(rest[None], like), tolerance)
    off = float(np.abs(got - said).max() / scale) if scale else 0.0
    worst = held.residual if held.residual >= off or math.isnan(held.residual) else off
    line, row = np.nonzero(alone)
    extras = Extras(row, plan.columns[line], alone[line, row])
    return Passes(ask, plan, found, replace(held, residual=worst, finite=False), extras)


def _mended(made: Passes, expected: Array, sweeps: Sweeps) -> Passes:
    """The same with a few columns swept alone, where only these disagree; what cannot be, is judged as a whole."""
    held = made.certificate
    better = mend(made.ask, made.plan, made.array, expected, sweeps, held)
    if better is None:
        whole = as_a_whole(made.ask, made.plan, made.array, expected, held.tolerance, held.probe)
        return replace(made, certificate=whole)
    right, extras, held, words = better
    return Passes(made.ask, made.plan, right, replace(held, probe=made.certificate.probe), extras, words)


def seeds_of(ask: Ask, plan: Compressed) -> Array:
    """(passes, m) for a pull: a one at every row of a pass."""
    if "seeds" in plan.kept:
        return plan.kept["seeds"]
    arrays: Any = ask.y.record.backend.arrays
    compression, like = plan.compression, ask.y if plan.way == "pull" else ask.x.values[0]
    count, colors = compression.count, compression.colors
    if len(colors) == 1:  # some lines may have no color
        swept = np.flatnonzero(colors[0] != NOBODY)
        tables: Tables = (colors[0].reshape(-1)[swept] * count + swept,)
    else:
        tables = (*(table * count for table in colors), np.arange(count).reshape(compression.lines))
    if ask.accelerated and compression.passes * count > FEW_ONES:
        seeds = arrays.ones_at((compression.passes, count), written_out(ask, tables, like), like)
    else:
        ones = np.zeros(compression.passes * count, dtype=bool if ask.accelerated else np.float32)  # a byte travels faster
        ones[np.asarray(sum(tables))] = 1
        seeds = arrays.from_numpy(ones.reshape(compression.passes, count), like)
    if plan.compression.passes * count * arrays.itemsize(like) < KEEP:
        plan.kept["seeds"] = seeds
    return seeds


def seeds_and_probe(ask: Ask, plan: Compressed) -> Array:
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


def _slim(ask: Ask, plan: Compressed) -> None:
    """Indices that only the proof needed stay for the next time, but not beside a large answer that they rival."""
    if answer_bytes(ask) >= SMALL and 8 * plan.compression.passes * plan.compression.width > answer_bytes(ask) // 16:
        for name in ("seeds", "batch", *KEPT):
            plan.kept.pop(name, None)


def allowed(ask: Ask, plan: Compressed, operations: int) -> float:
    """`guess_tolerance`, kept; not on a device, where the user may change at any time how exactly it multiplies."""
    known: float | None = plan.kept.get("tolerance")
    if known is None:
        known = guess_tolerance(ask, operations)
        if not ask.accelerated:
            plan.kept["tolerance"] = known
    return known


def guess_tolerance(ask: Ask, operations: int = TYPICAL) -> float:
    """What a right guess may differ by: roundoff of one pass through so many operations, not of a wrong entry."""
    epsilon = max(ask.y.record.backend.arrays.precision(v) for v in (ask.y, *ask.x.values))
    return min(COARSE, epsilon * SLACK * (TYPICAL + operations))
