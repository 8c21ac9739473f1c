"""The proof of rows or columns that were swept together: the probe two ways, and zeros in every slot that nobody owns.

Freivalds' check on compressed passes: each column of the Jacobian is summed up from the slots that belong to it, weighted
by the probe, and held next to what the engine says of the probe. Where the probe was pushed, so is each row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Positions, Shape
from wrt._core.pattern import Way
from wrt._core.plan import Compressed
from wrt._core.protocol import Array
from wrt._core.report import Certificate
from wrt._run.at_once import ALONE
from wrt._run.certify import probe_of, signs, verdict
from wrt._run.tables import summed, written_out

KEPT = ("weights", "free", "columns", "lines", "at hand, pull", "at hand, push")
"""What a plan keeps for its next proof; the lines behind its slots, until somebody has placed them."""

LEAST = 1 / 32  # of the largest column, which a smaller one is held to: what cancelled on the way left its roundoff
COARSE = 0.05  # the most that is ever allowed: so few roundings of half precision and TF32 that they are held to the largest

Numbers = npt.NDArray[Any]


def compare(
    ask: Ask, plan: Compressed, found: Array, expected: Array | None, tolerance: float, probe: str = ALONE
) -> Certificate:
    """Whether the passes agree with what the engine said of the probe (None: it is their last row); `probe` tells how.

    Each column is held to its own size where the host sees the numbers, to that of the largest elsewhere.
    """
    look = getattr(ask.y.record.backend.arrays, "at_hand", None)
    brought = None if look is None else look(found) if expected is None else look(found, expected)
    held = None
    if brought is not None:
        held = at_a_glance(ask, plan, brought[0], None if expected is None else brought[1], tolerance, probe)
    elif look is not None and not ask.accelerated:
        held = _by_columns(ask, plan, found, expected, tolerance, probe)
    return as_a_whole(ask, plan, found, expected, tolerance, probe) if held is None else held


def as_a_whole(
    ask: Ask, plan: Compressed, found: Array, expected: Array | None, tolerance: float, probe: str = ALONE
) -> Certificate:
    """The same by the size of the largest column, wherever the arrays live and whatever is in them."""
    held = verdict(ask, *_summed_up(ask, plan, found, expected))
    return Certificate("probe", math.inf if held.words else held.residual, tolerance, held.words, held.finite, probe)


def _by_columns(
    ask: Ask, plan: Compressed, found: Array, expected: Array | None, tolerance: float, probe: str
) -> Certificate | None:
    """The same by the size of each column, of more numbers than NumPy is quick with; None where that says nothing."""
    arrays = ask.y.record.backend.arrays
    got, said, size, stray = _summed_up(ask, plan, found, expected)
    if stray is not None and arrays.largest(arrays.abs(stray)) != 0:  # a NaN is not zero either
        return None
    with np.errstate(invalid="ignore"):  # what is infinite both ways is left to others
        residual = _of_own_size(arrays.numpy(got) - arrays.numpy(said), arrays.numpy(size), least(tolerance))
    return Certificate("probe", residual, tolerance, "", True, probe) if residual < math.inf else None


def compare_numbers(
    ask: Ask, plan: Compressed, numbers: Numbers, said: Numbers, way: Way, tolerance: float
) -> Certificate:
    """The same in NumPy's hands, of a probe that was swept `way`: a sum of rows, or of columns."""
    kept = _kept(ask, plan, numbers.dtype, way)
    if np.count_nonzero(numbers.reshape(-1).take(kept.free)):  # a NaN is not zero either
        return Certificate("probe", math.inf, tolerance, "an entry outside the pattern is not zero")
    with np.errstate(invalid="ignore", over="ignore"):
        weighted = kept.weighted(numbers)
        got, size = kept.sums(weighted), kept.sums(np.abs(weighted))
        scale = max(float(size.max()), float(np.abs(said).max()))
        residual = float(np.abs(got - said).max())
    if not (0.0 < scale < math.inf and residual < math.inf):
        return Certificate("probe", math.inf, tolerance, "not finite, or nothing but zeros")
    return Certificate("probe", residual / scale, tolerance, finite=True)


def _summed_up(
    ask: Ask, plan: Compressed, found: Array, expected: Array | None
) -> tuple[Array, Array, Array, Array | None]:
    """Of each column what the passes say of the probe, what the engine said, and its size; and what must be zero.

    By the arrays of the backend, wherever they live.
    """
    arrays, compression = ask.y.record.backend.arrays, plan.compression
    if expected is None:
        found, expected = found[:-1], found[-1:]
    boxed = arrays.reshape(found, compression.box)
    weights = arrays.cast_like(_weights(ask, plan), boxed)  # what is pushed has y's precision
    weighted = arrays.reshape(weights * boxed, (compression.passes, compression.width))
    nobodys = plan.kept["free"]
    stray = None if nobodys is None else arrays.only(boxed, nobodys)
    got, size = (_by_column(ask, plan, one) for one in (weighted, arrays.abs(weighted)))
    return got, arrays.reshape(expected, arrays.shape(got)), size, stray


def _weights(ask: Ask, plan: Compressed) -> Array:
    """The probe's weight of the row behind each slot of the passes, 0 where nobody owns it; broadcasts to the box."""
    if "weights" not in plan.kept:
        arrays, like, compression = ask.y.record.backend.arrays, ask.x.values[0], plan.compression
        rows = summed(ask, compression.owners if plan.way == "pull" else (compression.along,), like)
        weights = arrays.gather(arrays.reshape(probe_of(ask, like), (-1,)), arrays.reshape(rows, (-1,)))
        weights = arrays.reshape(weights, arrays.shape(rows))
        for mask in compression.owned:
            weights = weights * arrays.from_numpy(mask, like)
        plan.kept["weights"] = weights
        # no weight of a probe is zero by itself
        plan.kept["free"] = arrays.zeros(compression.box, like) == weights if compression.owned else None
        if plan.way == "pull" and ask.accelerated and "places" not in plan.kept:
            plan.kept["lines"] = rows
        elif plan.way == "push":
            plan.kept["columns"] = written_out(ask, (*compression.owners, compression.along * 0), like)
    return plan.kept["weights"]


def _by_column(ask: Ask, plan: Compressed, weighted: Array) -> Array:
    """Sums of the entries of each column of the Jacobian."""
    arrays = ask.y.record.backend.arrays
    if plan.way == "pull":
        return arrays.total(weighted, 0)
    return arrays.sum_at(ask.n, plan.kept["columns"], arrays.reshape(weighted, (-1,)))


@dataclass(frozen=True, slots=True, eq=False)
class AtHand:
    """What NumPy needs to sum up what a probe weighs: for a sum of rows each column, for a sum of columns each row.

    `weights`, of the line behind each slot, broadcasts to `box`; `free` are the slots that nobody owns. Axes of the box
    that are `summed` belong to one sum; `owners` then tells which of the `length` sums each number that is left goes to,
    where passes and probe were swept in different ways. `joined` are the weights of passes and of the probe behind them,
    which is taken off.
    """

    box: Shape
    weights: Numbers
    free: Positions
    summed: tuple[int, ...]
    length: int
    owners: Positions | None = None
    joined: Numbers | None = None
    count: int = field(init=False)
    """Numbers of all passes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", math.prod(self.box))

    def weighted(self, numbers: Numbers) -> Numbers:
        found: Numbers = numbers.reshape(self.box) * self.weights
        return found

    def sums(self, weighted: Numbers) -> Numbers:
        """The probe of the Jacobian, from weighted passes whose free slots are all zero."""
        found = np.add.reduce(weighted, self.summed).reshape(-1)
        return found if self.owners is None else np.bincount(self.owners, found, self.length)


def at_a_glance(
    ask: Ask, plan: Compressed, numbers: Numbers, said: Numbers | None, tolerance: float, probe: str = ALONE
) -> Certificate | None:
    """The same as NumPy tells it: much quicker for the few numbers that most passes return.

    The residual of each column is taken next to the sum of what makes it up. None where that says nothing: an entry that
    is not finite or outside the pattern, nothing but zeros.
    """
    kept = _kept(ask, plan, numbers.dtype, "pull")
    flat = numbers.reshape(-1)
    passes = flat[: kept.count]
    if not 0.0 < passes.dot(passes) < math.inf or (len(kept.free) and np.logical_or.reduce(flat.take(kept.free))):  # a NaN, too
        return None
    if said is None:
        assert kept.joined is not None
        said, off = numbers[-1], np.einsum("kn,kn->n", numbers, kept.joined)  # no product is written down
    else:
        said = said.reshape(-1)
        off = kept.sums(kept.weighted(numbers)) - said
    worst, told = float(np.maximum.reduce(np.abs(off))), np.abs(said)
    largest = float(np.maximum.reduce(told))  # what is said of a column is never more than its size
    allowed = tolerance * least(tolerance)
    if kept.joined is not None and not worst <= allowed * largest:
        one = told.argmax()
        largest = float(np.add.reduce(np.abs(numbers[: len(kept.weights), one] * kept.weights[:, one])))
    if worst <= allowed * largest < math.inf:  # little even for a small column, since one is as large as this
        return Certificate("probe", worst / largest, tolerance, "", True, probe)
    residual = _of_own_size(off, kept.sums(np.abs(kept.weighted(passes))), least(tolerance))
    return Certificate("probe", residual, tolerance, "", True, probe) if residual < math.inf else None


def least(tolerance: float) -> float:
    """The share of the largest column that every column is held to at least."""
    return LEAST if tolerance < COARSE else 1.0


def _of_own_size(off: Numbers, size: Numbers, share: float) -> float:
    """The largest residual of a column next to its size, or to a share of the largest; `off` and `size` are used up."""
    largest = float(np.maximum.reduce(size))
    if not 0.0 < largest < math.inf:  # a NaN is not, either
        return math.inf
    np.divide(np.abs(off, out=off), np.maximum(size, share * largest, out=size), out=off)
    return float(np.maximum.reduce(off))


def _kept(ask: Ask, plan: Compressed, dtype: Any, way: Way) -> AtHand:
    key = "at hand, pull" if way == "pull" else "at hand, push"
    found: AtHand | None = plan.kept.get(key)
    if found is None:
        found = plan.kept[key] = _at_hand(ask, plan, dtype, way)
    return found


def _at_hand(ask: Ask, plan: Compressed, dtype: Any, way: Way) -> AtHand:
    compression = plan.compression
    owners = np.asarray(sum(compression.owners))
    count, length = (ask.m, ask.n) if way == "pull" else (ask.n, ask.m)
    weights = signs(count)[0].astype(dtype)[owners if plan.way == way else compression.along]
    if plan.way != way:
        alike = tuple(axis for axis, size in enumerate(owners.shape) if size == 1)
        return AtHand(compression.box, weights, compression.free, alike, length, owners.reshape(-1))
    passes = (compression.passes, compression.width)
    joined = np.full((passes[0] + 1, passes[1]), -1, dtype)
    joined[:-1].reshape(compression.box)[...] = weights
    return AtHand(passes, joined[:-1], compression.free, (0,), length, joined=joined)
