"""Some numbers of y, by which another process sees that it recorded the same run.

A builder that draws at random, reads a file that changed or meets another version of a package gives another run, and a
block of it must never stand next to blocks of this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._notation.derivative import Derivative
from wrt._notation.trace import Handle
from wrt.errors import CannotTravel

MOST = 64
SLACK = 2.0**13  # roundings by which two machines may differ


@dataclass(frozen=True, slots=True, eq=False)
class Witness:
    """Numbers of y at some flat positions, and the precision they were computed with."""

    positions: npt.NDArray[np.int64]
    numbers: npt.NDArray[Any]
    precision: float


def witness(derivative: Derivative) -> Witness | None:
    """What this run has at positions spread over y; None where a run does not keep its numbers."""
    value = derivative._y
    if not value.size:
        return None
    positions = np.unique(np.linspace(0, value.size - 1, min(MOST, value.size)).astype(np.int64))
    try:
        whole = Handle(value.record, value).value  # type: ignore[arg-type]
    except Exception:
        return None
    arrays = value.record.backend.arrays
    some = arrays.take(arrays.reshape(whole, (-1,)), positions, 0)
    return Witness(positions, arrays.numpy(some), arrays.precision(value))


def refuse_another_run(seen: Witness | None, derivative: Derivative) -> None:
    """Raise where this process recorded something else."""
    here = None if seen is None else witness(derivative)
    if seen is None or here is None:
        return
    with np.errstate(invalid="ignore"):
        off = np.abs(here.numbers - seen.numbers)
    both = np.isfinite(here.numbers) & np.isfinite(seen.numbers)
    scale = float(np.max(np.abs(seen.numbers), initial=0.0, where=both))
    worst = float(np.max(off, initial=0.0, where=both))
    if worst > SLACK * seen.precision * scale or (np.isfinite(here.numbers) != np.isfinite(seen.numbers)).any():
        raise CannotTravel(
            "the model built in this process is not the one that was asked about",
            f"y differs by {worst:.1e} from the run that the question was asked of, whose numbers are up to {scale:.1e}",
            "let build(state) give the same model everywhere: no random numbers, the same files and versions",
        )
