"""The pattern that explains a few sampled rows with the fewest passes."""

from __future__ import annotations

from math import prod

from wrt._core.index import Shape
from wrt._core.pattern import Compression, Way, compress
from wrt._plan.patterns.grid import gridded
from wrt._plan.patterns.lattice import MOST_CLASSES, Lattice, thin
from wrt._plan.patterns.samples import Samples
from wrt._plan.patterns.splits import splits
from wrt._plan.patterns.structure import Structure, relate

GOOD = 1.5  # a guess that holds this many times the sampled nonzeros needs no other view of the axes
TIGHT = 2.7  # the same for a view that another view is hardly better than
CLOSE = 4  # the same for a guess that follows every long axis: joint offsets (see `lattice`) will thin it out
ROUNDS = 3


def guess(samples: Samples, y: Shape, x: Shape) -> Structure | Lattice | None:
    """The tightest structure that explains the samples; None where no axis follows another."""
    observed = max(samples.counts, default=0)
    if not observed:
        return None
    best = first = relate(samples, y, x)
    if best.volume <= GOOD * observed:
        return best if best.links else None
    thinner = thin(best, samples) if best.links else None
    if thinner is not None:
        return thinner
    for _ in range(ROUNDS):
        better = _best_split(samples, best)
        if better.volume >= best.volume:
            break
        best = better
        if best.volume <= CLOSE * observed:
            break
    if not best.links:
        return None
    return best if best is first else thin(best, samples) or best


def _best_split(samples: Samples, best: Structure) -> Structure:
    """The tightest view with one more axis; the first one in which x follows every long axis of y will do."""
    better = best
    observed = max(samples.counts)
    enough = CLOSE * observed
    for shapes in splits(best.y, best.x):
        tried = relate(samples, *shapes)
        if tried.volume < better.volume:
            better = tried
            if tried.volume <= TIGHT * observed:
                break
            followed = {link.y for link in tried.links}
            if tried.volume <= enough and all(axis in followed or length <= MOST_CLASSES for axis, length in enumerate(tried.y)):
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
