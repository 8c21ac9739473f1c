"""Rows that share no entry are swept together; what comes back is told apart, and proven against one plain pull."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.pattern import NOBODY
from wrt._core.plan import Compressed
from wrt._core.protocol import Array, CannotBatch
from wrt._core.report import Certificate
from wrt._run.certify import signs, verdict
from wrt._run.sweeps import FEW, Sweeps

if TYPE_CHECKING:
    from scipy.sparse import csr_array

GUESS_SLACK = 2.0**8  # a guess is held to a tighter bound than the engine: a false alarm only costs time
KEEP = 2**26  # bytes of seeds and indices that a warm plan may hold


@dataclass(slots=True)
class Passes:
    """What the sweeps of a compressed plan returned, (passes, n) or (passes, m), and the evidence for it."""

    ask: Ask
    plan: Compressed
    array: Array
    certificate: Certificate

    @property
    def finite(self) -> bool:
        return self.ask.y.record.backend.arrays.all_finite(self.array)

    def dense(self) -> Array:
        """The (m, n) Jacobian, every entry where it belongs and exact zeros elsewhere."""
        arrays = self.ask.y.record.backend.arrays
        slots, places = self._flat()
        flat = arrays.reshape(self.array, (-1,))
        values = flat if slots is None else arrays.gather(flat, slots)
        return arrays.scatter((self.ask.m, self.ask.n), places, values, self.ask.x.values[0])

    def sparse(self) -> csr_array:
        """The nonzeros; the dense Jacobian is never formed."""
        from scipy.sparse import csr_array

        order, columns, starts = self._compressed_rows()
        values = self.ask.y.record.backend.arrays.numpy(self.array).reshape(-1)[order]
        found = csr_array((values, columns.copy(), starts.copy()), shape=(self.ask.m, self.ask.n))
        found.eliminate_zeros()
        return found

    def diagonal(self) -> Array:
        """dy_i/dx_i, flat."""
        arrays = self.ask.y.record.backend.arrays
        compression = self.plan.compression
        lines = np.arange(self.ask.m)
        color = np.maximum(compression.color, 0)
        owned = compression.owner[color, lines] == lines
        spots = arrays.index(color * compression.owner.shape[1] + lines, self.ask.x.values[0])
        picked = arrays.gather(arrays.reshape(self.array, (-1,)), spots)
        if owned.all():
            return picked
        return arrays.scatter(
            (self.ask.m,),
            arrays.index(np.flatnonzero(owned), self.ask.x.values[0]),
            arrays.gather(picked, arrays.index(np.flatnonzero(owned), self.ask.x.values[0])),
            self.ask.x.values[0],
        )

    def _flat(self) -> tuple[Any, Any]:
        kept = self.plan.kept
        if "places" not in kept:
            arrays, like = self.ask.y.record.backend.arrays, self.ask.x.values[0]
            slots, places = self.plan.compression.flat
            everything = len(slots) == self.plan.compression.owner.size
            kept["slots"] = None if everything else arrays.index(slots, like)
            kept["places"] = arrays.index(places, like)
        return kept["slots"], kept["places"]

    def _compressed_rows(self) -> tuple[Any, Any, Any]:
        kept = self.plan.kept
        if "rows" not in kept:
            slots, places = self.plan.compression.flat
            by_place = np.argsort(places, kind="stable")
            rows, columns = np.divmod(places[by_place], self.ask.n)
            starts = np.zeros(self.ask.m + 1, dtype=np.int32)
            np.cumsum(np.bincount(rows, minlength=self.ask.m), out=starts[1:])
            kept["rows"] = slots[by_place], columns.astype(np.int32), starts
        order, columns, starts = kept["rows"]
        return order, columns, starts


def sweep_compressed(ask: Ask, plan: Compressed, sweeps: Sweeps, *, warm: bool = False) -> Passes | None:
    """Run the passes of the plan; None where nothing connects, or where no rung takes them.

    A guess is always proven, also where the user switched certificates off: without proof it would be just a guess.
    """
    arrays = ask.y.record.backend.arrays
    seeds = _seeds(ask, plan)
    together = "rows together" if plan.way == "pull" else "columns together"
    try:
        if warm and plan.passes > FEW and plan.way == "pull":  # the probe travels as one more row of the batch
            batch = sweeps.sweep(arrays.concat([seeds, _probe(ask, plan)], 0), f"{together}, and the probe")
            found, expected = (None, None) if batch is None else (batch[:-1], batch[-1:])
        else:
            found = sweeps.sweep(seeds, together, plan.way)
            expected = sweeps.sweep(_probe(ask, plan), "certificate", plain=True)
    except CannotBatch:
        return None
    if found is None or expected is None:
        return None
    return Passes(ask, plan, found, _compare(ask, plan, found, expected))


def _seeds(ask: Ask, plan: Compressed) -> Array:
    """(passes, m) for a pull: a one at every row of a pass."""
    if "seeds" in plan.kept:
        return plan.kept["seeds"]
    arrays = ask.y.record.backend.arrays
    like = ask.y if plan.way == "pull" else ask.x.values[0]
    lines = np.flatnonzero(plan.compression.color != NOBODY)
    count = len(plan.compression.color)
    spots = arrays.index(plan.compression.color[lines] * count + lines, like)
    ones = arrays.from_numpy(np.ones(len(lines)), like)
    seeds = arrays.scatter((plan.passes, count), spots, ones, like)
    if plan.passes * count * arrays.itemsize(like) < KEEP:
        plan.kept["seeds"] = seeds
    return seeds


def _probe(ask: Ask, plan: Compressed) -> Array:
    """(1, m): random weights of the rows."""
    if "probe" not in plan.kept:
        plan.kept["probe"] = ask.y.record.backend.arrays.from_numpy(signs(ask.m), ask.y)
    return plan.kept["probe"]


def _weights(ask: Ask, plan: Compressed) -> Array:
    """The probe's weight of the row behind each entry of the passes; 0 where nobody owns it."""
    if "weights" not in plan.kept:
        arrays, like = ask.y.record.backend.arrays, ask.x.values[0]
        owner = plan.compression.owner
        row = np.maximum(owner, 0) if plan.way == "pull" else np.arange(ask.m)[None, :]
        plan.kept["weights"] = arrays.from_numpy(np.where(owner == NOBODY, 0.0, signs(ask.m)[0][row]), like)
        free = np.flatnonzero(owner.reshape(-1) == NOBODY)
        plan.kept["free"] = arrays.index(free, like) if len(free) else None
        if plan.way == "push":
            plan.kept["columns"] = arrays.index(np.maximum(owner, 0).reshape(-1), like)
    return plan.kept["weights"]


def _compare(ask: Ask, plan: Compressed, found: Array, expected: Array) -> Certificate:
    """The probe two ways, and exact zeros in every entry that nobody owns."""
    arrays = ask.y.record.backend.arrays
    tolerance = guess_tolerance(ask)
    weighted = _weights(ask, plan) * found  # (passes, n), or (passes, m) for a push
    got, size = (_by_column(ask, plan, one) for one in (weighted, arrays.abs(weighted)))
    expected = arrays.reshape(expected, arrays.shape(got))
    if plan.kept["free"] is not None:
        stray = arrays.gather(arrays.reshape(found, (-1,)), plan.kept["free"])
        if not arrays.all_finite(stray) or arrays.largest(arrays.abs(stray)) > 0:
            return Certificate("probe", math.inf, tolerance, "an entry outside the pattern is not zero")
    held = verdict(ask, got, expected, size)
    if held.tolerance == math.inf:
        return Certificate("probe", math.inf, tolerance, "no finite entry to compare")
    return Certificate("probe", held.residual, tolerance)


def _by_column(ask: Ask, plan: Compressed, weighted: Array) -> Array:
    """Sums of the entries of each column of the Jacobian."""
    arrays = ask.y.record.backend.arrays
    if plan.way == "pull":
        return arrays.total(weighted, 0)
    return arrays.sum_at(ask.n, plan.kept["columns"], arrays.reshape(weighted, (-1,)))


def guess_tolerance(ask: Ask) -> float:
    """What a right guess may differ by: roundoff of one pass, not of a wrong entry."""
    epsilon = max(ask.y.record.backend.arrays.precision(v) for v in (ask.y, *ask.x.values))
    return min(0.05, epsilon * GUESS_SLACK)
