"""Lines of a Jacobian to be swept at any point, and how to read the answer from what comes back. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions, Shape
from wrt._core.pattern import Way

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Rows that are pulled, or columns that are pushed: line k is the sum of the elements with the label `wanted[k]`.

    `probe` weighs every element along the swept side. `weights` broadcasts to (lines, width) and tells how each number
    that comes back counts in the probe; where it is 0 nobody owns the number, which must be zero. `entries` are the owned
    slots of the flattened lines and their places in the flattened answer, in order; None where the lines are the answer,
    or `across` of what they return.
    """

    way: Way
    labels: Positions
    wanted: Positions
    probe: Weights
    weights: Weights
    shape: Shape
    entries: tuple[Positions, Positions] | None = None
    across: Positions | None = None
