"""The answer's side of the certificate, summed up while each chunk is at hand and in the cache."""

from __future__ import annotations

import time
from dataclasses import replace

from wrt._core.ask import Ask
from wrt._core.pattern import Way
from wrt._core.protocol import Array, Linear
from wrt._core.report import Certificate, Report, Step
from wrt._run.certify import passes_per_row, probe_of, seed_of, verdict
from wrt._run.columns import asked, pull_columns

IN_THE_BATCH = "as one more row of a batch of proven operations"
SETTING_UP = "by the unbatched pull that sets the push up"
ALONE = "by one unbatched pull"
BY_RULES = "by one pull of proven operations"


class Tally:
    """u @ J and |u| @ |J| for a random u, from chunks of rows (pull) or of columns (push, as (k, m))."""

    def __init__(self, ask: Ask, way: Way) -> None:
        self.ask = ask
        self.way = way
        self.arrays = ask.y.record.backend.arrays
        self.probe = probe_of(ask)  # (1, m)
        self.expected: Array | None = None
        self.by = IN_THE_BATCH
        self.got: list[Array] = []
        self.size: list[Array] = []

    def add(self, start: int, stop: int, block: Array) -> None:
        """Rows start:stop as (k, n), or columns start:stop as (k, m)."""
        arrays = self.arrays
        probe = arrays.cast_like(self.probe, block)
        if self.way == "push":
            self.got.append(arrays.matmul(block, arrays.transpose(probe)))  # (k, 1)
            self.size.append(arrays.matmul(arrays.abs(block), arrays.transpose(arrays.abs(probe))))
            return
        some = probe[:, start:stop]
        got, size = arrays.matmul(some, block), arrays.matmul(arrays.abs(some), arrays.abs(block))
        self.got = [got if not self.got else self.got[0] + got]
        self.size = [size if not self.size else self.size[0] + size]

    def certificate(self, linear: Linear, report: Report) -> Certificate:
        """Compare with one plain pull, or with what the batch itself said of the probe."""
        arrays, ask = self.arrays, self.ask
        expected = self.expected
        if expected is None:
            rung = linear.pull_rungs[-1]
            started = time.perf_counter()
            expected = pull_columns(ask, linear, self.seed, rung)  # (1, n)
            took = time.perf_counter() - started
            report.steps.append(Step("certificate", "pull", rung, passes_per_row(ask), passes_per_row(ask), took))
        elif self.by == ALONE:
            report.steps.append(Step("certificate", "pull", linear.pull_rungs[-1], 1, 1))
        got, size = (arrays.reshape(arrays.concat(parts, 0), (1, ask.n)) for parts in (self.got, self.size))
        found = verdict(ask, got, got * 0 if expected is None else expected, size)
        return found if self.expected is None else replace(found, probe=self.by)

    def set_up(self, linear: Linear) -> None:
        """Let the pull that sets a push up be the one of the probe: it is the engine's own, unbatched."""
        start = getattr(linear, "start_push", None)
        if start is None or any(map(self.arrays.is_complex, (self.ask.y, *self.ask.x.values))):
            return
        self.expected = asked(self.ask, start(self.seed), 1)
        self.by = SETTING_UP if getattr(linear, "set_up", False) else ALONE

    @property
    def seed(self) -> Array:
        """(1, *y.shape)"""
        return seed_of(self.ask, self.probe)

    def finite(self, found: Certificate | None) -> bool:
        """Whether every entry is finite, as the certificate may have seen already."""
        return (found is not None and found.finite) or all(map(self.arrays.all_finite, self.got))
