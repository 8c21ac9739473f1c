"""Points at which a model is probed: the one that was given, and others like it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import wrt
from wrt.extend import numbers, tensor_like

Numbers = npt.NDArray[Any]


def others(given: wrt.Handle, count: int, seed: int) -> Iterator[Any]:
    """More inputs of the same shape: floats around the given ones, token ids drawn from those that were given."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield tensor_like(another(numbers(given), random), given)


def another(x: Numbers, random: np.random.Generator) -> Numbers:
    """Numbers like these, but none of them the same where there is a choice."""
    if np.issubdtype(x.dtype, np.floating):
        spread = float(x.std()) or 1.0
        return (x + spread * random.standard_normal(x.shape)).astype(x.dtype)
    if x.dtype == bool:
        return random.random(x.shape) < 0.5
    drawn = random.choice(np.unique(x), size=x.shape)
    return drawn.astype(x.dtype)


def changed(x: Numbers, where: npt.NDArray[np.bool_], random: np.random.Generator) -> Numbers:
    """x with other numbers at some places."""
    return np.where(where, another(x, random), x).astype(x.dtype)
