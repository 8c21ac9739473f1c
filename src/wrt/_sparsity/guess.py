"""The pattern that explains a few sampled rows with the fewest passes."""

from __future__ import annotations

from math import prod

from wrt._core.index import Shape
from wrt._core.pattern import Compression, Way, compress
from wrt._sparsity.lattice import Lattice, thin
from wrt._sparsity.samples import Samples
from wrt._sparsity.splits import splits
from wrt._sparsity.structure import Structure, relate

GOOD = 1.5  # a guess that holds this many times the sampled nonzeros needs no other view of the axes
ROUNDS = 3


def guess(samples: Samples, y: Shape, x: Shape) -> Structure | Lattice | None:
    """The tightest structure that explains the samples; None where no axis follows another."""
    observed = int(samples.support.sum(1).max(initial=0))
    if not observed:
        return None
    best = relate(samples, y, x)
    if best.volume <= GOOD * observed:
        return best if best.links else None
    thinner = thin(best, samples) if best.links else None
    if thinner is not None:
        return thinner
    for _ in range(ROUNDS):
        tried = (relate(samples, *shapes) for shapes in splits(best.y, best.x))
        better = min(tried, key=lambda structure: structure.volume, default=best)
        if better.volume >= best.volume:
            break
        best = better
        if best.volume <= GOOD * observed:
            break
    if not best.links:
        return None
    return thin(best, samples) or best


def compression(found: Structure | Lattice, way: Way = "pull") -> Compression | None:
    """Which rows of a guessed pattern are pulled together, or which columns are pushed."""
    shape = (prod(_whole(found).y), prod(_whole(found).x))
    return compress(*found.entries(), found.coloring(way), shape, way)


def _whole(found: Structure | Lattice) -> Structure:
    return found if isinstance(found, Structure) else found.structure
