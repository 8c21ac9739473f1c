"""One question as a linear map that is multiplied many times: set up once, every product proven.

One plain pull of random weights u, at the start, gives w = u J. From then on each push is held to u (J v) = w v, which
costs no pass at all; a batch of pulls is held to one more plain pull of a random combination of its seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Elements
from wrt._core.protocol import Array, CannotBatch, Linear, random_signs
from wrt._core.report import Certificate, Report, Step
from wrt._core.value import Value
from wrt._run import execute, repair, same
from wrt._run.certify import SEED, passes_per_row, signs, tolerance, verdict
from wrt._run.chunk import chunk_size
from wrt._run.columns import pull_columns
from wrt._run.complex import refuse_if_not_holomorphic
from wrt._run.direct import set_up
from wrt._run.options import current
from wrt._run.sweeps import Sweeps

Fold = Callable[[int, int, Array], None]
"""Takes lines start:stop of the Jacobian: rows (k, n), or columns as (k, m)."""


class LinearMap:
    """m x n, in the coordinates of the question; arrays of the framework in and out, a leading axis of k."""

    def __init__(self, ask: Ask, report: Report | None = None) -> None:
        self.ask = ask
        self.report = Report() if report is None else report
        self.report.strategy = "direct"
        self.report.because = "a product from the right is a push, one from the left a pull"
        self.arrays = ask.y.record.backend.arrays
        self.m, self.n = ask.m, ask.n
        self.identity = execute.is_identity(ask)
        self._sweeps: Sweeps | None = None
        self._w: Array | None = None
        self._empty = self.m == 0 or self.n == 0
        self._known: bool = self.identity or self._empty
        self._dense: Array | None = None
        self._can_push = True
        self._set_up_told = False
        if self.identity:
            same.note(self.report)
        elif self._empty:
            self.report.certificate = Certificate("exact", words="the question is empty")

    # ---------------------------------------------------------------- setting up

    @property
    def linear(self) -> Linear | None:
        """The engine's side of the map; None where y does not depend on x."""
        self._find()
        return None if self._sweeps is None else self._sweeps.linear

    def _find(self) -> None:
        """The meaning of x to which a path leads, found by the one pull that all proofs rest on."""
        if self._known:
            return
        record = self.ask.y.record
        record.ready(self.ask.y, self.ask.x)
        for side in execute.meanings(self.ask.x):
            if not all(map(record.has_history, side.values)):
                continue
            some = self.ask if side is self.ask.x else replace(self.ask, x=side)
            linear = record.linear(some.y, side.values)
            refuse_if_not_holomorphic(some, linear, self.report)
            w = Sweeps(some, linear, self.report).sweep(self._u(), "set-up: u J for the proofs", plain=True)
            if w is not None:
                self.ask, self._w = some, w
                self._sweeps = Sweeps(some, linear, self.report)
                break
        else:
            execute.raise_unless_independent(self.ask)
            words = "y does not depend on x: exact zeros"
            self.report.certificate = Certificate("exact", words=words)
        self._known = True

    def _u(self) -> Array:
        """(1, m): random weights of the rows."""
        return self.arrays.from_numpy(signs(self.m), self.ask.y)

    # ---------------------------------------------------------------- products

    def push(self, v: Array) -> Array:
        """(k, n) -> (k, m): J v for each of k vectors, in one batch."""
        count = self.arrays.shape(v)[0]
        self._find()
        if self.identity:
            return same.product(self.ask, v, "push")
        if self._sweeps is None or not count:
            return self.arrays.zeros((count, self.m), self.ask.y)
        if self._can_push:
            try:
                pushed = self._sweeps.sweep(v, "J @ v", "push")
                if pushed is None:  # nothing leads through for these directions: the pull said otherwise
                    raise CannotBatch("the push found no path")
                self._tell_set_up()
                if self._holds(v, pushed):
                    return pushed
                self.report.fallbacks.append(f"push: the certificate disagreed ({self.report.certificate})")
            except CannotBatch as refusal:
                self.report.fallbacks.append(f"push: {refusal}")
            self._can_push = False
        block = self._all_rows()
        return self.arrays.matmul(self.arrays.cast_like(v, block), self.arrays.transpose(block))

    def pull(self, u: Array) -> Array:
        """(k, m) -> (k, n): u J for each of k vectors, in one batch."""
        count = self.arrays.shape(u)[0]
        self._find()
        if self.identity:
            return same.product(self.ask, u, "pull")
        if self._sweeps is None or not count:
            return self.arrays.zeros((count, self.n), self.ask.x.values[0])
        pulled = self._sweeps.sweep(u, "u @ J")
        if pulled is None:
            return self.arrays.zeros((count, self.n), self.ask.x.values[0])
        if self._was_plain() or self._batch_holds(u, pulled):
            return pulled
        self.report.fallbacks.append(f"pull: the certificate disagreed ({self.report.certificate})")
        found = self._sweeps.sweep(u, "u @ J, one by one", plain=True)
        assert found is not None
        return found

    def _tell_set_up(self) -> None:
        if not self._set_up_told and self._sweeps is not None and (steps := set_up(self._sweeps.linear)):
            self.report.steps.extend(steps)
            self._set_up_told = True

    def _all_rows(self) -> Array:
        """Where nothing can be pushed: all of it, once, if it fits."""
        if self._dense is None:
            found = execute.answer(self.ask)
            self.report.take(found.report)
            self._dense = found.array
        return self._dense

    # ---------------------------------------------------------------- all lines, a chunk at a time

    def fold_rows(self, start_over: Callable[[], Fold]) -> None:
        """Hand every row to a fresh fold, a chunk at a time; proven at the end by the one pull of the set-up.

        Where a batch does not hold, all is swept again on the next rung of the ladder, for a fold that starts over.
        """
        self._find()
        if self.identity or self._sweeps is None or self._empty:
            self._fold_known(start_over(), self.m, self.pull, self.ask.y)
            return
        linear = self._sweeps.linear
        for rung in linear.pull_rungs:
            try:
                if self._fold_on(rung, linear, start_over()):
                    return
            except CannotBatch as refusal:
                self.report.fallbacks.append(f"{rung}: {refusal}")
                continue
            self.report.fallbacks.append(f"{rung}: the certificate disagreed ({self.report.certificate})")
        raise AssertionError("the last rung never refuses")

    def _fold_on(self, rung: str, linear: Linear, fold: Fold) -> bool:
        arrays, ask = self.arrays, self.ask
        positions = None if ask.rows.everything else ask.rows.positions
        u = self._u()
        got = size = None
        step = Step("rows", "pull", rung, 0, 0)
        for start, stop in self.chunks(self.m):
            rows = np.arange(start, stop)
            seeds = arrays.one_hot(ask.y, rows if positions is None else positions[rows])
            block = pull_columns(ask, linear, seeds, rung)
            assert block is not None
            step.passes += (stop - start) * passes_per_row(ask)
            step.calls += stop - start if rung == linear.pull_rungs[-1] else 1
            if not arrays.all_finite(block):  # 0 x inf: asked again the other way
                part = replace(ask, rows=Elements.at(ask.y.shape, ask.rows.positions[rows]))
                block = repair.non_finite(part, linear, block, "pull", self.report)
            some = arrays.cast_like(u[:, start:stop], block)
            ours, most = arrays.matmul(some, block), arrays.matmul(arrays.abs(some), arrays.abs(block))
            got, size = (ours, most) if got is None or size is None else (got + ours, size + most)
            fold(start, stop, block)
        self.report.steps.append(step)
        if not current().certify:
            self.report.certificate = Certificate("none")
            return True
        self.report.certificate = verdict(ask, got, arrays.cast_like(self._w, got), size)
        return self.report.certificate.passed or rung == linear.pull_rungs[-1]

    def fold_columns(self, start_over: Callable[[], Fold]) -> None:
        """The same by columns, each chunk proven as it comes; raises CannotBatch where nothing can be pushed."""
        self._find()
        fold = start_over()
        if self.identity or self._sweeps is None or self._empty:
            self._fold_known(fold, self.n, self.push, self.ask.x.values[0])
            return
        for start, stop in self.chunks(self.n):
            block = self.push(self.units(start, stop, self.n, self.ask.x.values[0]))
            if not self._can_push:
                raise CannotBatch("no push holds")
            fold(start, stop, block)

    def units(self, start: int, stop: int, count: int, like: Value) -> Array:
        """Unit vectors start:stop of `count` elements."""
        kind = self.arrays.numpy(self.arrays.zeros((0,), like)).dtype
        weights = np.zeros((stop - start, count), kind)
        weights[np.arange(stop - start), np.arange(start, stop)] = 1
        return self.arrays.from_numpy(weights, like)

    def _fold_known(self, fold: Fold, count: int, product: Callable[[Array], Array], like: Value) -> None:
        for start, stop in self.chunks(count):
            fold(start, stop, product(self.units(start, stop, count, like)))

    def chunks(self, count: int) -> Iterator[tuple[int, int]]:
        size = chunk_size(self.ask)
        for start in range(0, count, size):
            yield start, min(start + size, count)

    # ---------------------------------------------------------------- proofs

    def _holds(self, v: Array, pushed: Array) -> bool:
        """u (J v) = (u J) v for every v of the batch; no pass is needed."""
        if not current().certify:
            self.report.certificate = Certificate("none")
            return True
        arrays = self.arrays
        w, v = arrays.cast_like(self._w, pushed), arrays.cast_like(v, pushed)
        u = arrays.cast_like(self._u(), pushed)
        self.report.certificate = self._verdict(
            arrays.matmul(u, arrays.transpose(pushed)),
            arrays.matmul(w, arrays.transpose(v)),
            arrays.matmul(arrays.abs(u), arrays.transpose(arrays.abs(pushed))),
            arrays.matmul(arrays.abs(w), arrays.transpose(arrays.abs(v))),
        )
        return self.report.certificate.passed

    def _batch_holds(self, u: Array, pulled: Array) -> bool:
        """r (U J) = (r U) J for random r, the right side by one plain pull."""
        if not current().certify:
            self.report.certificate = Certificate("none")
            return True
        arrays, count = self.arrays, self.arrays.shape(u)[0]
        r = arrays.cast_like(arrays.from_numpy(random_signs(1, count, SEED + 2), self.ask.y), u)
        assert self._sweeps is not None
        expected = self._sweeps.sweep(arrays.matmul(r, u), "certificate", plain=True)
        r = arrays.cast_like(r, pulled)
        got, most = arrays.matmul(r, pulled), arrays.matmul(arrays.abs(r), arrays.abs(pulled))
        self.report.certificate = verdict(self.ask, got, got * 0 if expected is None else expected, most)
        return self.report.certificate.passed

    def _was_plain(self) -> bool:
        """Whether the latest sweep was the engine's own, one seed at a time: its own evidence."""
        assert self._sweeps is not None
        plain = self.report.steps[-1].rung == self._sweeps.linear.pull_rungs[-1]
        if plain:
            self.report.certificate = Certificate("engine")
        return plain

    def _verdict(self, got: Array, expected: Array, *sizes: Array) -> Certificate:
        residual, *scales = self.arrays.maxima(self.arrays.abs(got - expected), *sizes)
        scale = max(scales)
        if not np.isfinite(scale) or not np.isfinite(residual):
            return Certificate("probe", 0.0, np.inf, "not finite: nothing to compare")
        return Certificate("probe", residual / scale if scale else 0.0, tolerance(self.ask))
