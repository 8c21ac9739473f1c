"""The blocks dy[b]/dx[b] of a batch: all samples in one pass where they do not mix, which is proven."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Positions, Shape
from wrt._core.pattern import Compression, Way, compress
from wrt._core.plan import Lines
from wrt._core.protocol import Array
from wrt._core.report import Report
from wrt._plan import cache
from wrt._plan.plans import worth_planning
from wrt._plan.thresholds import PLANNED_LINES
from wrt._run.answer import Answer, answer, attempt, is_identity
from wrt._run.compact import better_form, form_of, row_blocks
from wrt._run.forms import Factored, Sparse
from wrt._run.prove import Proof
from wrt._run.sweep import Sweeper
from wrt.errors import WrongShape

MIXED = "the samples mix"


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Where the samples stand: `rows[b]` lists the rows of sample b, `columns[b]` its columns; `axes` count them."""

    rows: Positions
    columns: Positions
    shape: Shape
    axes: tuple[int, int]

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def p(self) -> int:
        return int(self.rows.shape[1])

    @property
    def q(self) -> int:
        return int(self.columns.shape[1])


def samples_of(ask: Ask, y_axis: int, x_axis: int) -> Samples:
    """The samples along one axis of y and one of x."""
    y, x = ask.rows.shape, ask.x.shape
    if not y or not x or not (-len(y) <= y_axis < len(y) and -len(x) <= x_axis < len(x)):
        raise _no_blocks(y, x, f"there is no axis {y_axis} of y or no axis {x_axis} of x")
    if y[y_axis] != x[x_axis]:
        raise _no_blocks(y, x, f"axis {y_axis} of y counts {y[y_axis]}, axis {x_axis} of x counts {x[x_axis]}")
    rows = np.moveaxis(np.arange(ask.m).reshape(y), y_axis, 0)
    columns = np.moveaxis(np.arange(ask.n).reshape(x), x_axis, 0)
    shape = (len(rows), *rows.shape[1:], *columns.shape[1:])
    axes = y_axis % len(y), x_axis % len(x)
    return Samples(rows.reshape(len(rows), -1), columns.reshape(len(columns), -1), shape, axes)


def _no_blocks(y: Shape, x: Shape, words: str) -> WrongShape:
    return WrongShape(
        "block_diagonal() needs one axis of samples in y and in x",
        f"y has shape {y}, x has shape {x}: {words}",
        "name the axes: J.block_diagonal(y_axis=..., x_axis=...)",
    )


def block_diagonal(ask: Ask, samples: Samples, report: Report) -> Array:
    """(samples, *rest of y, *rest of x)."""
    arrays = ask.y.record.backend.arrays
    if not ask.m or not ask.n:
        return arrays.zeros(samples.shape, ask.x.values[0])
    return arrays.reshape(_found(ask, samples, report), samples.shape)


def _found(ask: Ask, samples: Samples, report: Report) -> Array:
    """(samples, p, q), in any shape: samples that do not mix share their passes, which the proof decides."""
    if is_identity(ask) or ask.m == 1:
        return _from_all(ask, samples, report)
    form = better_form(ask, report) if min(samples.p, samples.q) >= PLANNED_LINES and worth_planning(ask) else None
    matrix = _together(ask, samples, report) if form is None else None
    if matrix is not None:
        return _from_sparse(ask, matrix, samples)
    form = form_of(ask, report) if form is None else form
    if isinstance(form, Sparse):
        return _from_sparse(ask, form.matrix, samples)
    if isinstance(form, Factored):
        return _from_factors(ask, form, samples)
    return _row_by_row(ask, samples, report) if form is None else _from_dense(ask, form.dense(), samples)


def _together(ask: Ask, samples: Samples, report: Report) -> Any | None:
    """Element p of every sample in one pass; None where the samples mix, or where nothing could be swept together."""
    record = ask.y.record
    if ask.complex_y or ask.complex_x or ask.x.parts[0].component:
        return None
    record.ready(ask.y, ask.x)
    if not all(map(record.has_history, ask.x.values)):
        return None
    key = cache.key_of(ask), samples.axes
    if cache.recall(key) is not None:
        report.declined.append(MIXED)
        return None
    sweeper = Sweeper(ask, record.engine(ask.y, ask.x.values), report)
    proof = Proof(sweeper)
    told = len(report.fallbacks)
    ways: list[Way] = ["push", "pull"] if samples.p > samples.q + 2 and sweeper.engine.can_push else ["pull"]
    for way in ways:
        shared = _compression(ask, samples, way)
        because = f"{samples.count} samples share {samples.p if way == 'pull' else samples.q} passes"
        plan = Lines(way, shared.passes, because, "structured", shared=shared)
        found = attempt(proof, plan, compact=True)
        if isinstance(found, Answer):
            assert found.form is not None
            return found.form.csr()
        if found == "no path":
            return None
    report.fallbacks[told:] = [f"{MIXED}: {found}"]
    cache.remember(key, cache.NOTHING)  # the next such question goes without the attempt
    return None


def _compression(ask: Ask, samples: Samples, way: Way) -> Compression:
    """Element p of every sample (or q, for a push) has the color p."""
    lines = samples.rows if way == "pull" else samples.columns
    color = np.zeros(ask.m if way == "pull" else ask.n, dtype=np.int64)
    color[lines] = np.arange(lines.shape[1])[None, :]
    rows, columns = np.broadcast_arrays(samples.rows[:, :, None], samples.columns[:, None, :])
    found = compress(rows.reshape(-1), columns.reshape(-1), color, (ask.m, ask.n), way)
    assert found is not None, "no two samples share a line"
    return found


def _from_sparse(ask: Ask, known: Any, samples: Samples) -> Array:
    """The nonzeros whose row and column belong to the same sample."""
    matrix = known.tocoo()
    above, p = _places(samples.rows)
    beside, q = _places(samples.columns)
    row, column = matrix.coords
    own = above[row] == beside[column]
    row, column = row[own], column[own]
    blocks = np.zeros((samples.count, samples.p, samples.q), dtype=matrix.dtype)
    blocks[above[row], p[row], q[column]] = matrix.data[own]
    return ask.y.record.backend.arrays.from_numpy(blocks, ask.x.values[0])


def _places(lines: Positions) -> tuple[Positions, Positions]:
    """Of each line of the Jacobian: its sample, and which line of that it is."""
    sample, which = np.empty(lines.size, dtype=np.int64), np.empty(lines.size, dtype=np.int64)
    sample[lines], which[lines] = np.arange(len(lines))[:, None], np.arange(lines.shape[1])
    return sample, which


def _from_factors(ask: Ask, known: Factored, samples: Samples) -> Array:
    """Of J = L F, the rows of L and the columns of F that belong to the same sample."""
    arrays: Any = ask.y.record.backend.arrays
    last = arrays.take(known.last, samples.rows.reshape(-1), 0)
    first = arrays.take(known.first, samples.columns.reshape(-1), 1)
    width = arrays.shape(last)[1]
    return arrays.contract(
        "bpk,kbq->bpq",
        arrays.reshape(last, (samples.count, samples.p, width)),
        arrays.reshape(first, (width, samples.count, samples.q)),
    )


def _from_all(ask: Ask, samples: Samples, report: Report) -> Array:
    """From the whole Jacobian."""
    whole = answer(ask)
    report.take(whole.report)
    return _from_dense(ask, whole.array, samples)


def _from_dense(ask: Ask, whole: Array, samples: Samples) -> Array:
    arrays = ask.y.record.backend.arrays
    spots = samples.rows[:, :, None] * ask.n + samples.columns[:, None, :]
    return arrays.take(arrays.reshape(whole, (-1,)), spots.reshape(-1), 0)


def _row_by_row(ask: Ask, samples: Samples, report: Report) -> Array:
    """Every row, of which only its own sample's columns are kept."""
    arrays = ask.y.record.backend.arrays
    sample = np.empty(ask.m, dtype=np.int64)
    sample[samples.rows] = np.arange(samples.count)[:, None]
    kept: list[Array] = []
    for rows, block in row_blocks(ask, report):
        spots = np.arange(len(rows))[:, None] * ask.n + samples.columns[sample[rows]]
        kept.append(arrays.take(arrays.reshape(block, (-1,)), spots.reshape(-1), 0))
    lines = arrays.reshape(arrays.concat(kept, 0), (ask.m, samples.q))  # in the order of the rows
    return arrays.take(lines, samples.rows.reshape(-1), 0)
