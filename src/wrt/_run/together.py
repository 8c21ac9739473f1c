"""Many denominators, one set of passes: a pull reaches all parameters of a model at once.

Leaf by leaf, nothing is copied into one long row: what the engine returns for a leaf is that leaf's answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wrt._core.ask import Ask
from wrt._core.protocol import Array, CannotBatch, Linear, random_signs
from wrt._core.report import Certificate, Report, Step
from wrt._core.value import Side
from wrt._run.answer import Answer
from wrt._run.certify import SEED, compare
from wrt._run.chunk import chunk_size
from wrt._run.memory import SMALL, answer_bytes, free
from wrt._run.options import current
from wrt._run.row import ENGINE

FITS = 2**30  # bytes of all answers together; larger trees are answered leaf by leaf
PIECES = 2.2  # times the answers, while they are joined

Blocks = list[Array | None]  # for each leaf (rows, its columns), None where no path leads to it


def answers(asks: Sequence[Ask]) -> tuple[dict[int, Answer], set[int]]:
    """Blocks for questions about the same rows of one y, and the questions to which no path leads.

    What is in neither has to ask for itself.
    """
    found: dict[int, Answer] = {}
    joint = [k for k, ask in enumerate(asks) if _ordinary(ask)]
    if len(joint) < 2 or not _worth_it([asks[k] for k in joint]):
        return {}, set()
    some = [asks[k] for k in joint]
    linear = some[0].y.record.linear(some[0].y, tuple(ask.x.values[0] for ask in some))
    report = Report("direct", f"{len(some)} leaves of a tree share every pass")
    blocks = _row(some, linear, report) if some[0].m == 1 else _rows(some, linear, report)
    if report.certificate is None:
        return {}, set()
    for k, ask, block in zip(joint, some, blocks, strict=True):
        if block is not None and ask.y.record.backend.arrays.all_finite(block):
            found[k] = Answer(block, True, report)
    return found, {k for k, block in zip(joint, blocks, strict=True) if block is None}


def _ordinary(ask: Ask) -> bool:
    """Ordinary leaves travel together; the others answer, or refuse, for themselves."""
    record, part = ask.y.record, ask.x.parts[0]
    if len(ask.x.parts) > 1 or part.component or part.into is not None or ask.x.otherwise is not None or not ask.n:
        return False
    if any(map(record.backend.arrays.is_complex, (ask.y, part.value))) or record.same(ask.y, part.value):
        return False
    return record.has_history(ask.y) and record.has_history(part.value)


def _worth_it(asks: list[Ask]) -> bool:
    """Rows by pull serve all leaves at once; columns by push would not."""
    m, n = asks[0].m, sum(ask.n for ask in asks)
    return 0 < m <= n and current().way != "push" and _fits(asks, sum(map(answer_bytes, asks)))


def _fits(asks: list[Ask], needed: int) -> bool:
    """All answers together, and the pieces that they are joined from."""
    if needed > (current().memory or FITS):
        return False
    return needed < SMALL or PIECES * needed < free(asks[0].x.values[0])


def _row(asks: list[Ask], linear: Linear, report: Report) -> Blocks:
    seed = asks[0].y.record.backend.arrays.one_hot(asks[0].y, asks[0].rows.positions)
    report.steps.append(Step("rows", "pull", linear.pull_rungs[-1], 1, 1))
    report.certificate = ENGINE
    return _columns(asks, linear.pull(seed, linear.pull_rungs[-1]), 1)


def _rows(asks: list[Ask], linear: Linear, report: Report) -> Blocks:
    """Every row, on the first rung of the ladder whose answers all hold."""
    for rung in linear.pull_rungs:
        step = Step("rows", "pull", rung, 0, 0)
        try:
            blocks = _in_chunks(asks, linear, step)
        except CannotBatch as refusal:
            report.fallbacks.append(f"{rung}: {refusal}")
            continue
        report.steps.append(step)
        report.certificate = _certify(asks, linear, blocks, report) if current().certify else Certificate("none")
        if report.certificate.passed or report.certificate.kind == "none":
            return blocks
        report.fallbacks.append(f"{rung}: the certificate disagreed ({report.certificate})")
    report.certificate = None  # nothing held: each leaf asks for itself
    return [None] * len(asks)


def _in_chunks(asks: list[Ask], linear: Linear, step: Step) -> Blocks:
    first = asks[0]
    arrays = first.y.record.backend.arrays
    size = chunk_size(Ask(first.y, first.rows, Side((0,), tuple(ask.x.parts[0] for ask in asks))))
    pieces: list[Blocks] = []
    for start in range(0, first.m, size):
        positions = first.rows.positions[start : start + size]
        pulled = linear.pull(arrays.one_hot(first.y, positions), step.rung)
        pieces.append(_columns(asks, pulled, len(positions)))
        step.passes += len(positions)
        step.calls += len(positions) if step.rung == linear.pull_rungs[-1] else 1
    return [None if column[0] is None else arrays.concat(column, 0) for column in zip(*pieces, strict=True)]


def _columns(asks: list[Ask], pulled: list[Array | None], count: int) -> Blocks:
    arrays = asks[0].y.record.backend.arrays
    blocks: Blocks = []
    for ask, gradient in zip(asks, pulled, strict=True):
        if gradient is not None:
            elements = ask.x.parts[0].elements
            gradient = arrays.reshape(gradient, (count, ask.x.values[0].size))
            gradient = gradient if elements.everything else arrays.take(gradient, elements.positions, 1)
        blocks.append(gradient)
    return blocks


def _certify(asks: list[Ask], linear: Linear, blocks: Blocks, report: Report) -> Certificate:
    """One plain pull of a random combination of rows, compared in every leaf; the worst leaf speaks for all."""
    first = asks[0]
    arrays = first.y.record.backend.arrays
    probe = arrays.from_numpy(random_signs(1, first.m, SEED), first.y)  # (1, m)
    rung = linear.pull_rungs[-1]
    expected = _columns(asks, linear.pull(arrays.spread(first.y, first.rows.positions, probe), rung), 1)
    report.steps.append(Step("certificate", "pull", rung, 1, 1))
    verdicts = [
        compare(ask, probe, block, row)
        for ask, block, row in zip(asks, blocks, expected, strict=True)
        if block is not None
    ]
    return max(verdicts, key=lambda one: one.residual / (one.tolerance or np.inf), default=Certificate("exact"))
