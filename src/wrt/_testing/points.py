"""Points at which a model is probed: the one that was given, and others like it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import wrt
from wrt.extend import numbers, tensor_like

Numbers = npt.NDArray[Any]

FAR = 4.0  # times the spread of the numbers
ROUNDINGS = 64  # that a number may differ by which stayed as it was


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


def changes(x: Numbers, where: npt.NDArray[np.bool_], random: np.random.Generator) -> Iterator[Numbers]:
    """x with other numbers at some places: near ones, far ones, and turned around. Decisions have to be pushed over an edge."""
    near, again = another(x, random), another(x, random)
    if np.issubdtype(x.dtype, np.floating):
        moved = [near, x + FAR * (again - x), -x]
    else:
        moved = [near, again, another(x, random)]
    for other in moved:
        yield np.where(where, other, x).astype(x.dtype)


def most_changed(before: Numbers, after: Numbers, where: npt.NDArray[np.bool_], precision: float) -> tuple[int, ...] | None:
    """The element that changed most where nothing may change; None where all of it is roundoff."""
    same = (after == before) | (np.isnan(after) & np.isnan(before))
    with np.errstate(invalid="ignore"):
        off = np.nan_to_num(np.abs(after - before), nan=np.inf)  # what became a NaN has changed
    difference = np.where(where & ~same, off, 0.0)
    before, after = (one[np.isfinite(one)] for one in (before, after))
    largest = max(float(np.abs(before).max(initial=0.0)), float(np.abs(after).max(initial=0.0)), 1e-30)
    if not difference.max(initial=0.0) > ROUNDINGS * precision * largest:
        return None
    return tuple(int(k) for k in np.unravel_index(int(difference.argmax()), difference.shape))
