"""Guess and certify: a few rows show how the axes of y and x relate; rows that cannot meet travel together."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.pattern import Way
from wrt._core.plan import Compressed, Direct
from wrt._sparsity.guess import compression, guess
from wrt._sparsity.samples import Samples, spread_rows

Support = Callable[[Positions], npt.NDArray[np.bool_]]
"""Rows of the question -> where each is nonzero, (k, n)."""

SAMPLES = 12
DENSE = 0.4  # a typical row with more nonzeros than this share leaves nothing to gain
GAIN = 0.7  # of the direct passes that a guess may take, its samples included


def structured(
    ask: Ask, support: Support, instead_of: Direct, push_cost: float = math.inf
) -> tuple[Compressed | None, Samples | None]:
    """The plan, where a structure shows and pays; and the samples, for the strategies after this one."""
    rows = spread_rows(ask.rows.shape, SAMPLES)
    samples = Samples(rows, support(rows))
    if samples.density > DENSE:
        return None, samples
    return from_samples(ask, samples, instead_of, push_cost), samples


def from_samples(
    ask: Ask, samples: Samples, instead_of: Direct, push_cost: float = math.inf
) -> Compressed | None:
    """The plan that these samples suggest; `push_cost` is the price of a push next to a pull."""
    found = guess(samples, ask.rows.shape, ask.x.shape)
    if found is None:
        return None
    way: Way = "push" if found.passes_by("push") * push_cost < found.passes else "pull"
    if found.passes_by(way) > GAIN * instead_of.passes - len(samples.rows):
        return None
    compressed = compression(found, way)
    if compressed is None:
        return None
    shown = f"{len(samples.rows)} sampled rows show that {found}"
    return Compressed(compressed, f"{shown}; {compressed.passes} passes instead of {instead_of.passes}")
