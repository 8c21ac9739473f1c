"""The blocks dy[b]/dx[b] of a batch: all samples in one pass where they do not mix, which is proven."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Positions, Shape
from wrt._core.pattern import Compression, Way, compress
from wrt._core.plan import Compressed, Direct
from wrt._core.protocol import Array
from wrt._core.report import Report
from wrt._operators.linear_map import Fold, LinearMap
from wrt._planner import warm
from wrt._planner.choose import choose
from wrt._run import execute
from wrt._run.compressed import Passes, sweep_compressed
from wrt._run.direct import set_up
from wrt._run.factored import Factors
from wrt._run.products import in_fewer_passes, small_block
from wrt._run.straight import straight
from wrt._run.sweeps import Sweeps
from wrt.errors import WrongShape

MANY = 64  # numbers of a sample beyond which a structure of J as a whole is looked for first


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
    """(samples, p, q), in any shape; samples with many numbers may have a structure that takes fewer passes than those."""
    if execute.is_identity(ask):
        return _from_all(ask, samples, report)
    many = min(samples.p, samples.q) > MANY
    known = in_fewer_passes(ask, report) if many else None
    found = None if known is not None else _together(ask, samples, report)
    if found is not None:
        return _from_passes(found, samples)
    if not many:
        known = in_fewer_passes(ask, report)
    if isinstance(known, Passes):
        return _from_sparse(ask, known, samples)
    if known is not None and hasattr(ask.y.record.backend.arrays, "contract"):
        return _from_factors(ask, known, samples)
    return _from_all(ask, samples, report)


def _together(ask: Ask, samples: Samples, report: Report) -> Passes | None:
    """Element p of every sample in one pass; None where the samples mix, or where nothing could be swept together."""
    record, arrays = ask.y.record, ask.y.record.backend.arrays
    if arrays.is_complex(ask.y) or any(map(arrays.is_complex, ask.x.values)) or not hasattr(arrays, "scatter"):
        return None
    key = ("blocks", samples.axes, warm.key_of(ask))
    known = warm.recall(key)
    if isinstance(known, Direct):
        return None  # they did mix, when such a question was asked before
    if isinstance(known, Compressed) and (again := straight(ask, known, report)) is not None:
        return again
    record.ready(ask.y, ask.x)
    if not all(map(record.has_history, ask.x.values)):
        return None
    linear = record.linear(ask.y, ask.x.values)
    ways: list[Way] = ["pull"] if samples.p <= samples.q + 2 or not linear.push_rungs else ["push", "pull"]
    plans = (Compressed(_compression(ask, samples, way), _because(samples, way), kept={}) for way in ways)
    for plan in [known] if isinstance(known, Compressed) else plans:
        found = sweep_compressed(ask, plan, Sweeps(ask, linear, report), warm=plan is known)
        report.steps.extend(set_up(linear))
        warm.forget(key)  # until it has held again
        if found is not None and found.certificate.passed and found.finite:
            report.strategy, report.because, report.certificate = "structured", plan.because, found.certificate
            if not found.mended:
                warm.remember(key, plan)
            if found.mended:
                report.fallbacks.append(f"the samples mix: {found.mended}")
            return found
        if found is not None and not found.certificate.passed:
            report.fallbacks.append(f"the samples mix: {found.certificate.words or found.certificate}")
            warm.remember(key, choose(ask))
            return None
    return None


def _because(samples: Samples, way: Way) -> str:
    passes = samples.p if way == "pull" else samples.q
    return f"{samples.count} samples share {passes} passes"


def _compression(ask: Ask, samples: Samples, way: Way) -> Compression:
    """Element p of every sample (or q, for a push) has the color p."""
    lines = samples.rows if way == "pull" else samples.columns
    color = np.zeros(ask.m if way == "pull" else ask.n, dtype=np.int64)
    color[lines] = np.arange(lines.shape[1])[None, :]
    rows, columns = np.broadcast_arrays(samples.rows[:, :, None], samples.columns[:, None, :])
    found = compress(rows.reshape(-1), columns.reshape(-1), color, (ask.m, ask.n), way)
    assert found is not None, "no two samples share a line"
    return found


def _from_passes(found: Passes, samples: Samples) -> Array:
    """Entry (p, q) of sample b came back in pass p at column (b, q); by push in pass q at row (b, p)."""
    arrays, kept, like = found.ask.y.record.backend.arrays, found.plan.kept, found.ask.x.values[0]
    if "blocks" not in kept:
        p, q = np.arange(samples.p)[None, :, None], np.arange(samples.q)[None, None, :]
        if found.plan.way == "pull":
            spots = p * found.ask.n + samples.columns[:, None, :] + 0 * q
        else:
            spots = q * found.ask.m + samples.rows[:, :, None] + 0 * p
        kept["blocks"] = arrays.index(spots.reshape(-1), like)
    return arrays.cast(arrays.gather(arrays.reshape(found.array, (-1,)), kept["blocks"]), like)


def _from_sparse(ask: Ask, known: Passes, samples: Samples) -> Array:
    """The nonzeros whose row and column belong to the same sample."""
    matrix = known.sparse().tocoo()
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


def _from_factors(ask: Ask, known: Factors, samples: Samples) -> Array:
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
    """From the whole Jacobian, or row by row where that is large."""
    arrays, whole = ask.y.record.backend.arrays, small_block(ask, report)
    if whole is None:
        return _row_by_row(ask, samples, report)
    spots = samples.rows[:, :, None] * ask.n + samples.columns[:, None, :]
    return arrays.take(arrays.reshape(whole, (-1,)), spots.reshape(-1), 0)


def _row_by_row(ask: Ask, samples: Samples, report: Report) -> Array:
    """Every row, of which only its own sample's columns are kept."""
    arrays = ask.y.record.backend.arrays
    sample = np.empty(ask.m, dtype=np.int64)
    sample[samples.rows] = np.arange(samples.count)[:, None]
    kept: list[Array] = []

    def start_over() -> Fold:
        kept.clear()

        def keep(start: int, stop: int, block: Array) -> None:
            spots = np.arange(stop - start)[:, None] * ask.n + samples.columns[sample[start:stop]]
            kept.append(arrays.take(arrays.reshape(block, (-1,)), spots.reshape(-1), 0))

        return keep

    LinearMap(ask, report).fold_rows(start_over)
    lines = arrays.reshape(arrays.concat(kept, 0), (ask.m, samples.q))  # in the order of the rows
    return arrays.take(lines, samples.rows.reshape(-1), 0)
