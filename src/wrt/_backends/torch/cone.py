"""Rows and columns of a local map: only the patch of every layer that lies between them is pulled.

Walking from y, the rows asked for can reach a growing box of each tensor; walking from x, the columns asked for are
reached from a growing box. A pull has to visit the intersection alone. A convolution is pulled by a convolution of
patches; the slope of whatever acts on each number by itself is what its own backward says of ones. An operation that is
in none of these tables is not known to be local: None, and whole tensors are swept.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from wrt._backends.torch import compat, local
from wrt._backends.torch.local import Box, Layer
from wrt._backends.torch.walk import Spot, Walk
from wrt._core.index import Positions
from wrt._core.value import Value

MOST_LAYERS = 400


class Cone:
    """The patches between some rows of y and some columns of x.

    `work` counts the multiplications of a pull through them, `whole` those of a pull through the whole tensors.
    """

    def __init__(self, layers: list[Layer], boxes: dict[Spot, Box]) -> None:
        self.layers = layers
        self.boxes = boxes
        self.work = sum(layer.work(boxes[layer.spot]) for layer in layers[:-1])
        self.whole = sum(layer.work(layer.everything) for layer in layers[:-1])

    def pull(self, seeds: torch.Tensor, rows: Positions, columns: Positions) -> torch.Tensor:
        """(k, rows) -> (k, columns)"""
        with compat.Undisturbed(), torch.no_grad():
            held = {self.layers[0].spot: self._laid(rows, seeds)}
            for layer in self.layers[:-1]:
                g = held.pop(layer.spot, None)
                if g is None:
                    continue
                for k, source in layer.sources:
                    piece = local.pulled(layer, k, source, g, self.boxes[layer.spot], self.boxes[source.spot])
                    before = held.get(source.spot)
                    held[source.spot] = piece if before is None else before + piece
            return self._picked(held[self.layers[-1].spot], columns)

    def _laid(self, rows: Positions, seeds: torch.Tensor) -> torch.Tensor:
        """Weights of the rows as a patch of y; rows outside of the patch cannot reach the columns."""
        y = self.layers[0]
        sizes = [b - a for a, b in self.boxes[y.spot]]
        place = _inside(self.boxes[y.spot], y, rows)
        kept = np.flatnonzero(place >= 0)
        patch = torch.zeros(len(seeds), math.prod(sizes), dtype=seeds.dtype, device=seeds.device)
        if len(kept) < len(rows):
            seeds = seeds[:, torch.from_numpy(kept).to(seeds.device)]
        patch.index_add_(1, torch.from_numpy(place[kept]).to(seeds.device), seeds)
        return patch.reshape(len(patch), *sizes)

    def _picked(self, g: torch.Tensor, columns: Positions) -> torch.Tensor:
        x = self.layers[-1]
        place = _inside(self.boxes[x.spot], x, columns)
        return g.reshape(len(g), -1)[:, torch.from_numpy(place).to(g.device)]


def cone(y: Value, rows: Positions, x: Value, columns: Positions) -> Cone | None:
    """None where something between y and x is not known to be local, or where the two cannot meet."""
    layers = _layers((y.key.edge.node, y.key.edge.output_nr), (x.key.edge.node, x.key.edge.output_nr))
    if layers is None:
        return None
    reach = {layers[0].spot: _bounds(layers[0], rows)}
    for layer in layers[:-1]:
        for _, source in layer.sources:
            box = local.back(layer, source, reach[layer.spot])
            reach[source.spot] = _joined(reach.get(source.spot), box)
    ahead = {layers[-1].spot: _bounds(layers[-1], columns)}
    for layer in reversed(layers[:-1]):
        for _, source in layer.sources:
            box = local.forth(layer, source, ahead[source.spot])
            ahead[layer.spot] = _joined(ahead.get(layer.spot), box)
    boxes = {spot: _common(box, ahead[spot]) for spot, box in reach.items()}
    if any(a >= b for box in boxes.values() for a, b in box):
        return None  # exact zeros, which the engine says too
    boxes[layers[-1].spot] = ahead[layers[-1].spot]
    return Cone(layers, boxes)


def _layers(start: Spot, end: Spot) -> list[Layer] | None:
    """From y to x, each after everything that is computed from it; None where one is made by an unknown operation."""
    seen: set[Any] = set()

    def make(spot: Spot, sources: list[tuple[int, Layer]]) -> Layer | None:
        layer = Layer(spot)
        layer.sources = sources
        first = layer.node not in seen  # two results of one operation: none of ours has two
        seen.add(layer.node)
        return layer if first and local.is_local(layer) else None

    return Walk(make, MOST_LAYERS).run(start, end, Layer(end))


def _joined(one: Box | None, other: Box) -> Box:
    if one is None:
        return other
    return tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def _common(one: Box, other: Box) -> Box:
    return tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def _bounds(layer: Layer, positions: Positions) -> Box:
    places = np.unravel_index(positions, layer.shape)
    return tuple((int(each.min()), int(each.max()) + 1) for each in places)


def _inside(box: Box, layer: Layer, positions: Positions) -> Positions:
    """Flat positions within a patch, -1 for those outside of it."""
    found = np.zeros(len(positions), dtype=np.int64)
    valid = np.ones(len(positions), dtype=bool)
    for place, (a, b) in zip(np.unravel_index(positions, layer.shape), box, strict=True):
        found = found * (b - a) + (place - a)
        valid &= (place >= a) & (place < b)
    return np.where(valid, found, -1)
