"""The pattern that explains a few sampled rows with the fewest passes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import prod

from wrt._core.index import Shape
from wrt._core.pattern import Compression, Way, compress
from wrt._core.thresholds import FEW_ITEMS
from wrt._plan.patterns.lattice import Lattice, thin
from wrt._plan.patterns.samples import Samples
from wrt._plan.patterns.structure import Structure, gridded, relate
from wrt._plan.thresholds import CLOSE_RATIO, GOOD_RATIO, LATTICE_CLASSES, TIGHT_RATIO


def guess(samples: Samples, y: Shape, x: Shape) -> Structure | Lattice | None:
    """The tightest structure that explains the samples; None where no axis follows another."""
    observed = max(samples.counts, default=0)
    if not observed:
        return None
    best = first = relate(samples, y, x)
    if best.volume <= GOOD_RATIO * observed:
        return best if best.links else None
    thinner = thin(best, samples) if best.links else None
    if thinner is not None:
        return thinner
    while (better := _best_split(samples, best)).volume < best.volume:
        best = better
        if best.volume <= CLOSE_RATIO * observed:
            break
    if not best.links:
        return None
    return best if best is first else thin(best, samples) or best


def _best_split(samples: Samples, best: Structure) -> Structure:
    """The tightest view with one more axis; the first one in which x follows every long axis of y will do."""
    better = best
    observed = max(samples.counts)
    enough = CLOSE_RATIO * observed
    for shapes in splits(best.y, best.x):
        tried = relate(samples, *shapes)
        if tried.volume < better.volume:
            better = tried
            if tried.volume <= TIGHT_RATIO * observed:
                break
            unfollowed = [tried.y[axis] for axis in set(range(len(tried.y))) - {link.y for link in tried.links}]
            if tried.volume <= enough and all(length <= LATTICE_CLASSES for length in unfollowed):
                break
    return better


def compression(found: Structure | Lattice, way: Way = "pull") -> Compression | None:
    """Which rows of a guessed pattern are pulled together, or which columns are pushed."""
    if isinstance(found, Structure):
        product = gridded(found, way)
        if product is not None:
            return product
    shape = (prod(_whole(found).y), prod(_whole(found).x))
    return compress(*found.entries(), found.coloring(way), shape, way)


def _whole(found: Structure | Lattice) -> Structure:
    return found if isinstance(found, Structure) else found.structure


# ---------------------------------------------------------------- shapes that a flattened or reshaped tensor may have had before


def splits(y: Shape, x: Shape) -> Iterator[tuple[Shape, Shape]]:
    """Both shapes with one axis split the way the other side suggests.

    >>> next(splits((2048,), (2, 32, 32)))
    ((2, 32, 32), (2, 32, 32))
    """
    for axis, length in enumerate(y):
        for factors in _factors(length, x):
            yield y[:axis] + factors + y[axis + 1 :], x
    for axis, length in enumerate(x):
        for factors in _factors(length, y):
            yield y, x[:axis] + factors + x[axis + 1 :]


def _factors(length: int, others: Shape) -> Iterator[Shape]:
    """Ways to write a length as a product of the other side's lengths, with one factor left over at most."""
    lengths = [n for n in others if n > 1 and n < length and length % n == 0]
    seen: set[Shape] = set()
    for count in range(min(len(lengths), 4), 0, -1):
        for chosen in permutations(lengths, count):
            rest, remainder = divmod(length, prod(chosen))
            if remainder:
                continue
            for factors in (chosen,) if rest == 1 else ((rest, *chosen), (*chosen, rest)):
                if len(factors) > 1 and factors not in seen:
                    seen.add(factors)
                    yield factors
                if len(seen) >= FEW_ITEMS:
                    return
