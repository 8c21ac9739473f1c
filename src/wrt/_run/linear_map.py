"""A question as a linear map that is multiplied, perhaps many times: J @ v is a push, u @ J a pull, every product proven.

One plain pull of random weights u gives w = u J. From then on each push is held to u (J v) = w v, which costs no pass at
all; a batch of pulls is held to one more plain pull of a random combination of its seeds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wrt._core.ask import Ask
from wrt._core.protocol import Array, CannotSweep, random_signs
from wrt._core.report import Certificate, Report
from wrt._core.value import Value
from wrt._run import identity
from wrt._run.answer import INDEPENDENT, answer, is_identity, meant, raise_unless_independent
from wrt._run.holomorphic import refuse_if_not_holomorphic
from wrt._run.memory import is_small, lines_per_call
from wrt._run.options import current
from wrt._run.prove import ENGINE, SEED, SWITCHED_OFF, Proof, compare, wide
from wrt._run.sweep import Sweeper
from wrt._run.thresholds import FLOOR_ROUNDINGS, STACKED_PRODUCTS


class LinearMap:
    """m x n, in the coordinates of the question; arrays of the framework in and out, a leading axis of k."""

    def __init__(self, ask: Ask, report: Report | None = None) -> None:
        self.ask = ask
        self.report = Report() if report is None else report
        self.report.strategy = "direct"
        self.arrays = ask.y.record.backend.arrays
        self.m, self.n = ask.m, ask.n
        self.identity = is_identity(ask)
        self.empty = self.m == 0 or self.n == 0
        self._sweepers: list[Sweeper] | None = None
        self._proofs: dict[int, Proof] = {}
        self._dense: Array | None = None
        self._can_push = True
        if self.identity:
            identity.note(self.report)
        elif self.empty:
            self.report.certificate = Certificate("exact", words="the question is empty")

    def _meanings(self) -> Iterator[Sweeper]:
        """The map of x, then that of what x stands for if nothing leads to it; each is set up once."""
        if self._sweepers is None:
            record = self.ask.y.record
            record.ready(self.ask.y, self.ask.x)
            self._sweepers = [Sweeper(some, record.engine(some.y, some.x.values), self.report) for some in meant(self.ask)]
        yield from self._sweepers

    def _independent(self, count: int, width: int, like: Value) -> Array:
        """Zeros for proven independence, an error where nothing is known."""
        raise_unless_independent(self.ask)
        self.report.strategy, self.report.because = "none needed", INDEPENDENT
        self.report.certificate = Certificate("exact", words=INDEPENDENT)
        return self.arrays.zeros((count, width), like)

    # ---------------------------------------------------------------- products from the left

    def pull(self, u: Array) -> Array:
        """(k, m) -> (k, n): u J for each of k vectors."""
        count = self.arrays.shape(u)[0]
        if self.identity:
            return identity.product(self.ask, u, "pull")
        if self.empty or not count:
            return self.arrays.zeros((count, self.n), self.ask.x.values[0])
        self.report.because = self.report.because or "a product from the left is a pull"
        for sweeper in self._meanings():
            rows = self._stacked(sweeper, u) if count >= STACKED_PRODUCTS else None
            if rows is None:
                rows = self._one_by_one(sweeper, u, count)
            if rows is not None:
                refuse_if_not_holomorphic(sweeper)
                self._keep(sweeper)
                return self._finite(rows, u)
        return self._independent(count, self.n, self.ask.x.values[0])

    def _one_by_one(self, sweeper: Sweeper, u: Array, count: int) -> Array | None:
        """Each by the engine's own unbatched pull, which is its own evidence; None where no path leads to x."""
        rows = [sweeper.plain(self._copy(u[k : k + 1]), "u @ J") for k in range(count)]
        if rows[0] is None:
            return None
        self.report.certificate = ENGINE
        return self.arrays.concat(rows, 0)

    def _stacked(self, sweeper: Sweeper, u: Array) -> Array | None:
        """The same in a batch, held to the plain pull of a random combination; None where it does not hold, or no path."""
        if sweeper.ask.complex_y or sweeper.ask.complex_x:
            return None
        arrays, count = self.arrays, self.arrays.shape(u)[0]
        rows = sweeper.pull_weights(self._copy(u), "u @ J")
        if rows is None:
            return None
        if not current().certify:
            self.report.certificate = SWITCHED_OFF
            return rows
        weights = arrays.from_numpy(random_signs(1, count, SEED + 2), self.ask.y)
        expected = sweeper.plain(arrays.matmul(arrays.cast_like(weights, u), u), "independent check")
        if expected is None:
            return None
        precision = Proof(sweeper).precision
        found = compare(
            *arrays.weighted_columns(wide(arrays.numpy(weights))[0], rows), wide(arrays.numpy(expected))[0], precision
        )
        if found.certificate.passed and found.finite:
            self.report.certificate = found.certificate
            return rows
        self.report.fallbacks.append(f"batch: {found.certificate}")
        return None

    def _copy(self, u: Array) -> Array:
        """A hook of the user's may write into what is pulled, and u is theirs too."""
        return u * 1

    def _finite(self, rows: Array, u: Array) -> Array:
        """0 x inf inside of a sum of rows is NaN, also where every entry of J is finite: then J itself is asked."""
        if self.arrays.all_finite(rows) or not is_small(self.ask):
            return rows
        block = self._all_rows()
        if not self.arrays.all_finite(block):
            return rows
        self.report.notes.append("the product met 0 x inf: it was made of the rows of J, all of them finite")
        return self.arrays.matmul(self.arrays.cast_like(u, block), block)

    # ---------------------------------------------------------------- products from the right

    def push(self, v: Array) -> Array:
        """(k, n) -> (k, m): J v for each of k vectors, in one batch."""
        count = self.arrays.shape(v)[0]
        if self.identity:
            return identity.product(self.ask, v, "push")
        if self.empty or not count:
            return self.arrays.zeros((count, self.m), self.ask.y)
        self.report.because = self.report.because or "a product from the right is a push"
        for sweeper in self._meanings():
            proof = self._proofs.setdefault(id(sweeper), Proof(sweeper))
            if not proof.pull(then_push=True):
                continue
            refuse_if_not_holomorphic(sweeper)
            self._keep(sweeper)
            pushed = self._push(sweeper, proof, v) if self._can_push and sweeper.engine.can_push else None
            if pushed is not None:
                return pushed
            self._can_push = False
            block = self._all_rows()
            return self.arrays.matmul(self.arrays.cast_like(v, block), self.arrays.transpose(block))
        return self._independent(count, self.m, self.ask.y)

    def _push(self, sweeper: Sweeper, proof: Proof, v: Array) -> Array | None:
        """The first way of pushing that holds; None where none does."""
        for batched in (True, False):
            try:
                pushed = sweeper.push(v, "J @ v", batched=batched)
            except CannotSweep as refusal:
                self.report.fallbacks.append(f"push: {refusal}")
                return None
            if pushed is None:
                self.report.fallbacks.append("push: it found no path, where a pull did")
                return None
            if not current().certify:
                self.report.certificate = SWITCHED_OFF
                return pushed
            held = self._held(proof, v, pushed)
            if held:
                self.report.certificate = held
                return pushed
            self.report.fallbacks.append(f"push: {held}")
        return None

    def _held(self, proof: Proof, v: Array, pushed: Array) -> Certificate:
        """u (J v) = (u J) v for every v; the product on the right side rounds by itself."""
        weights, expected = proof.pass_made
        numbers, given = wide(self.arrays.numpy(pushed)), wide(self.arrays.numpy(v))
        noise = FLOOR_ROUNDINGS * proof.precision * (np.abs(expected) @ np.abs(given).T)
        with np.errstate(all="ignore"):
            size = np.linalg.norm(numbers, axis=1)
            return compare(weights @ numbers.T, size, expected @ given.T, proof.precision, noise).certificate

    def _keep(self, sweeper: Sweeper) -> None:
        """From now on this meaning of x is asked first."""
        self._sweepers = [sweeper]

    def _all_rows(self) -> Array:
        """Where nothing else helps: all of it, once, if it fits."""
        if self._dense is None:
            found = answer(self.ask)
            self.report.take(found.report)
            self._dense = found.array
        return self._dense

    # ---------------------------------------------------------------- columns, some at a time

    @property
    def pushes(self) -> bool:
        """Whether products from the right are pushes, as far as is known."""
        return self._can_push

    def column_blocks(self) -> Iterator[tuple[int, int, Array]]:
        """(start, stop, (k, m)): columns as products with unit vectors, each block proven. Raises CannotSweep."""
        size = lines_per_call(self.ask, self.n)
        for start in range(0, self.n, size):
            stop = min(start + size, self.n)
            block = self.push(self.units(start, stop, self.n, self.ask.x.values[0]))
            if not self._can_push:
                raise CannotSweep("no push holds")
            yield start, stop, block

    def units(self, start: int, stop: int, count: int, like: Value) -> Array:
        """Unit vectors start:stop of `count` elements."""
        weights = np.zeros((stop - start, count))
        weights[np.arange(stop - start), np.arange(start, stop)] = 1
        return self.arrays.from_numpy(weights, like)
