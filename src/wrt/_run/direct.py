"""One pass for each row, or for each column, a chunk at a time, into one array that is allocated once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.pattern import Way
from wrt._core.plan import Direct
from wrt._core.protocol import Array, CannotBatch, Linear, NotForThis
from wrt._core.report import Certificate, Report, Step
from wrt._planner.choose import choose
from wrt._run.budget import SMALL, adopts, answer_bytes
from wrt._run.certify import passes_per_row
from wrt._run.chunk import chunk_size
from wrt._run.columns import pull_columns, tangents
from wrt._run.heap import Heap, aligned_zeros
from wrt._run.options import current
from wrt._run.progress import Progress
from wrt._run.tally import Tally

SweepSome = Callable[[Positions, Array | None], Array | None]
"""Some rows (or columns), and a probe to sweep with them -> (k, n), the probe last; None where no path leads there."""


@dataclass(slots=True)
class Swept:
    """An (m, n) block, how it was swept, and whether all of it is known to be finite."""

    array: Array
    way: Way
    finite: bool


Proof = Literal["plain", "in the batch", "later"]
"""One unbatched pull; one more row of the batch, where the same passes were proven plainly before; or elsewhere."""


def sweep_direct(ask: Ask, linear: Linear, plan: Direct, report: Report, *, proof: Proof = "plain") -> Swept | None:
    """Rows or columns as planned; rows where pushing is refused or disagrees. None where no path leads to x."""
    if plan.way == "push":
        # a push may drop a branch, alone as well as in a batch: only a plain pull proves it
        pushed = _push_all(ask, linear, report, proof="later" if proof == "later" else "plain")
        if pushed is not None:
            report.strategy, report.because = plan.strategy, plan.because
            return pushed
        plan = choose(ask, can_push=False)
    report.strategy, report.because = plan.strategy, plan.because
    return _pull_all(ask, linear, report, proof=proof)


def _pull_all(ask: Ask, linear: Linear, report: Report, *, proof: Proof) -> Swept | None:
    """Every row, on the first rung of the ladder whose answer holds."""
    arrays = ask.y.record.backend.arrays
    positions = None if ask.rows.everything else ask.rows.positions
    rungs = linear.pull_rungs if ask.m > 1 else linear.pull_rungs[-1:]
    for rung in rungs:

        def sweep(rows: Positions, probe: Array | None, rung: str = rung) -> Array | None:
            seeds = arrays.one_hot(ask.y, rows if positions is None else positions[rows])
            return pull_columns(ask, linear, seeds if probe is None else arrays.concat([seeds, probe], 0), rung)

        here: Proof = "plain" if proof == "in the batch" and rung != rungs[0] else proof
        try:
            found = sweep_lines(ask, linear, report, sweep, Step("rows", "pull", rung, 0, 0), proof=here)
        except NotForThis:
            continue
        except CannotBatch as refusal:
            report.fallbacks.append(f"{rung}: {refusal}")
            continue
        if found is None or holds(report) or rung == rungs[-1]:
            return found
        report.fallbacks.append(f"{rung}: the certificate disagreed ({report.certificate})")
    raise AssertionError("the last rung never refuses")


def _push_all(ask: Ask, linear: Linear, report: Report, *, proof: Proof) -> Swept | None:
    """Every column, or None where pushing is refused or its answer does not hold."""
    arrays = ask.y.record.backend.arrays
    for rung in linear.push_rungs:

        def sweep(columns: Positions, probe: Array | None, rung: str = rung) -> Array | None:
            pushed = linear.push(tangents(ask, columns), rung)
            if pushed is None:
                return None
            flat = _in_numbers_of_x(ask, arrays.reshape(pushed, (len(columns), -1)))
            return flat if ask.rows.everything else arrays.take(flat, ask.rows.positions, 1)

        try:
            found = sweep_lines(ask, linear, report, sweep, Step("columns", "push", rung, 0, 0), proof=proof)
        except NotForThis:
            continue
        except CannotBatch as refusal:
            report.fallbacks.append(f"{rung}: {refusal}")
            continue
        if found is None or holds(report):
            return found
        report.fallbacks.append(f"{rung}: the certificate disagreed ({report.certificate})")
    return None


def _in_numbers_of_x(ask: Ask, pushed: Array) -> Array:
    """What was pushed has y's precision; an answer has x's."""
    arrays, x = ask.y.record.backend.arrays, ask.x.values[0]
    if ask.y.dtype == x.dtype or ask.x.parts[0].component:
        return pushed
    if not arrays.is_complex(ask.y) or arrays.is_complex(x):
        return arrays.cast(pushed, x)
    pairs = arrays.cast(arrays.pairs(pushed), x)
    return arrays.complex(pairs[..., 0], pairs[..., 1])


def set_up(linear: Linear) -> list[Step]:
    """The pass that some engines need before their first push: a pull that is kept differentiable."""
    return [Step("set-up of the push", "pull", "kept differentiable", 1, 1)] if getattr(linear, "set_up", False) else []


def holds(report: Report) -> bool:
    """Whether the answer may be used."""
    return report.certificate is None or report.certificate.kind == "none" or report.certificate.passed


def sweep_lines(
    ask: Ask, linear: Linear, report: Report, sweep: SweepSome, step: Step, *, proof: Proof
) -> Swept | None:
    """Rows (or columns) in chunks, each written where it belongs and counted for the certificate."""
    arrays = ask.y.record.backend.arrays
    count = ask.m if step.way == "pull" else ask.n
    per_line = passes_per_row(ask) if step.way == "pull" else 1
    size = chunk_size(ask)
    single = step.way == "pull" and ask.m == 1
    tally = Tally(ask, step.way) if proof != "later" and not single and current().certify else None
    if tally is not None and step.way == "push":
        tally.set_up(linear)
    started = time.perf_counter()
    sheet, heap = Sheet(ask, step.way), Heap(ask)
    with Progress(f"{count} {step.what} of a {ask.m} x {ask.n} Jacobian", count) as progress:
        for start in range(0, count, size):
            stop = min(start + size, count)
            probe = tally.seed if tally is not None and proof == "in the batch" and not start else None
            block = sweep(np.arange(start, stop), probe)
            step.passes += (stop - start) * per_line
            step.calls += per_line * (stop - start if "one by one" in step.rung else 1)
            if block is None:
                report.steps.append(step)
                return None
            if probe is not None:
                assert tally is not None
                block, tally.expected = block[: stop - start], block[stop - start :]
            sheet.write(start, stop, block)
            if tally is not None:
                tally.add(start, stop, block)
            del block
            heap.look()
            progress.advance(stop - start)
    step.seconds = time.perf_counter() - started
    report.steps.append(step)
    if tally is not None and tally.expected is not None and step.way == "pull":
        report.steps.append(Step("certificate, one more row of the batch", "pull", step.rung, per_line, 0))
    if tally is not None:
        report.certificate = tally.certificate(linear, report)
    elif proof != "later":
        report.certificate = Certificate("engine") if single else Certificate("none")
    whole = sheet.whole
    if proof == "later":
        return Swept(whole, step.way, False)  # a factor: whoever multiplies it looks at the product
    finite = arrays.all_finite(whole) if tally is None else tally.finite(report.certificate)
    return Swept(whole, step.way, finite)


class Sheet:
    """The (m, n) answer, each line of it written in place once.

    Where arrays of the framework cannot be written, a large answer is written in NumPy's memory, which the framework
    then takes over as it is; what it cannot take over is joined at the end.
    """

    def __init__(self, ask: Ask, way: Way) -> None:
        self.arrays = ask.y.record.backend.arrays
        self.shape = (ask.m, ask.n)
        self.way = way
        self.lines = ask.m if way == "pull" else ask.n
        self.in_place = getattr(self.arrays, "writes_in_place", False)
        large = not self.in_place and answer_bytes(ask) >= SMALL
        self.adopt: Callable[[Array], Array] | None = getattr(self.arrays, "adopt", None) if large and adopts(ask) else None
        self.written: Array | None = None
        self.blocks: list[Array] = []

    def write(self, start: int, stop: int, block: Array) -> None:
        """Lines start:stop, each a row of the block."""
        if (not self.in_place and self.adopt is None) or stop - start == self.lines:
            self.blocks.append(block)
            return
        if self.adopt is not None:
            block = self.arrays.numpy(block)
        if self.written is None:
            zeros = aligned_zeros(self.shape, block.dtype) if self.adopt else self.arrays.zeros_like(self.shape, block)
            self.written = zeros
        if self.way == "pull":
            self.written[start:stop] = block
        else:
            self.written[:, start:stop] = block.T if self.adopt else self.arrays.transpose(block)

    @property
    def whole(self) -> Array:
        if self.written is not None:
            return self.adopt(self.written) if self.adopt is not None else self.written
        found = self.blocks[0] if len(self.blocks) == 1 else self.arrays.concat(self.blocks, 0)
        return found if self.way == "pull" else self.arrays.transpose(found)
