"""Rows and columns of a local map: only the patch of every layer that lies between them is pulled.

Walking from y, the rows asked for can reach a growing box of each tensor; walking from x, the columns asked for are
reached from a growing box. A pull has to visit the intersection alone. A convolution is pulled by a convolution of
patches; the slope of whatever acts on each number by itself is what its own backward says of ones. An operation that is
in none of these tables is not known to be local: None, and whole tensors are swept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from wrt._backends.torch import compat, local
from wrt._backends.torch.local import Box, Layer, Spot
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
    made: dict[Spot, Layer | None] = {end: Layer(end)}
    order: list[Layer] = []

    def finish(spot: Spot) -> bool:
        layer = Layer(spot)
        layer.sources = [
            (k, source) for k, s in enumerate(spot[0].next_functions) if (source := made.get(s)) is not None
        ]
        made[spot] = layer if layer.sources else None
        if layer.sources:
            order.append(layer)
        return not layer.sources or local.is_local(layer)

    if not _after_sources(start, made, finish) or made.get(start) is None:
        return None
    return [*reversed(order), made[end]]  # type: ignore[list-item]


def _after_sources(start: Spot, made: dict[Spot, Layer | None], finish: Callable[[Spot], bool]) -> bool:
    """Visit every tensor after those it is made from; False as soon as one is not to be had, or at too many."""
    outputs: dict[Any, Spot] = {}
    stack: list[tuple[Spot, bool]] = [(start, False)]
    while stack:
        spot, ready = stack.pop()
        if spot in made:
            continue
        if ready:
            if not finish(spot):
                return False
            continue
        if outputs.setdefault(spot[0], spot) != spot or len(outputs) > MOST_LAYERS:
            return False  # two results of one operation: none of ours has two
        stack.append((spot, True))
        stack.extend((s, False) for s in spot[0].next_functions if s[0] is not None and s not in made)
    return True


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
