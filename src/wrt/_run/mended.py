"""Where the proof of a guess fails in a few columns only, these are swept alone; the rest stands as it was proven.

A dependency outside the pattern spoils its own column and no other: what it adds to a pass is taken for the entry of
another row, there. So the residual of the probe tells the columns, one push each brings them, and the probe proves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.plan import Compressed
from wrt._core.protocol import Array, CannotBatch
from wrt._core.report import Certificate
from wrt._run.certify import signs
from wrt._run.proof import least
from wrt._run.sweeps import Sweeps

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MOST = 16  # columns that are swept alone; more of them mean that the guess was no good
SHARE = 1 / 16  # of all columns


@dataclass(frozen=True, slots=True)
class Extras:
    """Entries outside of the pattern."""

    rows: Positions
    columns: Positions
    values: npt.NDArray[Any]

    def added_to(self, found: csr_array) -> csr_array:
        from scipy.sparse import csr_array

        return csr_array(found + csr_array((self.values, (self.rows, self.columns)), shape=found.shape))


def mend(
    ask: Ask, plan: Compressed, found: Array, expected: Array, sweeps: Sweeps, held: Certificate
) -> tuple[Array, Extras | None, Certificate, str] | None:
    """The passes with the columns that disagree put right, what lies outside the pattern, and the proof of it all.

    No words and nothing outside where the columns, looked at one by one, turn out to have been right. None where too many
    disagree, where they cannot be pushed, or where the pushed ones disagree as well.
    """
    if plan.way != "pull" or not sweeps.linear.push_rungs:
        return None
    arrays, owner = ask.y.record.backend.arrays, plan.compression.owner
    passes = arrays.numpy(found)
    said = arrays.numpy(expected).reshape(-1)
    off, size = _residuals(passes, owner, signs(ask.m)[0], said)
    scale = max(float(size.max(initial=0.0)), float(np.abs(said).max(initial=0.0)))
    allowed = held.tolerance * np.maximum(size, least(held.tolerance) * scale)
    columns = np.flatnonzero(~(off <= allowed) | ((passes != 0) & (owner < 0)).any(0))
    if not 0 < len(columns) <= min(MOST, SHARE * ask.n) or not np.isfinite(scale):
        return None
    try:
        alone = push_alone(ask, sweeps, columns, "columns that did not fit")
    except CannotBatch:
        return None
    off[columns] = np.abs(alone @ signs(ask.m)[0] - said[columns])
    mended = Certificate("probe", float(off.max() / scale), held.tolerance)
    if not mended.passed:
        return None
    right, extras = _told_apart(owner, columns, alone)
    if not len(extras.rows) and (np.abs(right - passes[:, columns]) <= held.tolerance * scale).all():
        return found, None, mended, ""  # roundoff of what cancelled, larger than what was left of it
    put_right = arrays.place(found, (slice(None), columns), arrays.from_numpy(right, ask.x.values[0]))
    named = ", ".join(map(str, columns[:4].tolist())) + (", ..." if len(columns) > 4 else "")
    words = f"in {len(columns)} columns ({named})" if len(columns) > 1 else f"in column {named}"
    return put_right, extras, mended, f"{words}, swept alone"


def push_alone(ask: Ask, sweeps: Sweeps, columns: Positions, what: str) -> npt.NDArray[Any]:
    """(k, m): these columns, each by a push of its own. Raises CannotBatch where pushing is refused."""
    arrays = ask.y.record.backend.arrays
    weights = np.zeros((len(columns), ask.n), dtype=np.float32)
    weights[np.arange(len(columns)), columns] = 1.0
    pushed = sweeps.sweep(arrays.from_numpy(weights, ask.x.values[0]), what, "push")
    return np.zeros((len(columns), ask.m)) if pushed is None else arrays.numpy(pushed)


def _residuals(
    passes: npt.NDArray[Any], owner: Positions, probe: npt.NDArray[np.float64], said: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """How far each column is off, and the size of what was summed up for it."""
    weighted = np.where(owner < 0, 0.0, probe[np.maximum(owner, 0)] * passes.astype(np.float64))
    with np.errstate(invalid="ignore"):  # what is infinite both ways is not known to agree
        return np.abs(weighted.sum(0) - said), np.abs(weighted).sum(0)


def _told_apart(
    owner: Positions, columns: Positions, alone: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], Extras]:
    """What the passes should have held at these columns, and what no slot of theirs is for."""
    at = owner[:, columns]  # (passes, k)
    spots = np.arange(len(columns))[None, :]
    right = np.where(at < 0, 0, alone[spots, np.maximum(at, 0)])
    outside = alone.copy()
    passing, place = np.nonzero(at >= 0)
    outside[place, at[passing, place]] = 0
    place, rows = np.nonzero(outside)
    return right, Extras(rows, columns[place], outside[place, rows])
