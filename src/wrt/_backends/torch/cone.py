"""Rows and columns of a local map: only the patch of every layer that lies between them is pulled.

Walking from y, the rows asked for can reach a growing box of each tensor; walking from x, the columns asked for are
reached from a growing box. A pull has to visit the intersection alone. A convolution is pulled by a convolution of
patches; the slope of whatever acts on each number by itself is what its own backward says of ones. An operation that is
in none of these tables is not known to be local: None, and whole tensors are swept.

What the graph says is read every time; the boxes that follow from it are kept, as a recipe for the next such graph.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from wrt._backends.torch import compat, local
from wrt._backends.torch.local import Box, Operation, Pull
from wrt._backends.torch.nodes import Spot
from wrt._backends.torch.walk import Sources, walk
from wrt._core.index import Elements, Positions, Shape
from wrt._core.value import Value

MOST_LAYERS = 400
KEPT = 64  # recipes: one for each selection of rows and columns in each kind of graph

Operations = tuple[Operation, ...]


class Cone:
    """The patches between some rows of y and some columns of x, in one graph.

    `work` counts the multiplications of a pull through them, `whole` those of a pull through the whole tensors.
    """

    def __init__(self, recipe: Recipe, nodes: list[Any]) -> None:
        self.recipe = recipe
        self.nodes = nodes
        self.work = recipe.work
        self.whole = recipe.whole
        self.operations = len(nodes)

    def pull(self, seeds: torch.Tensor) -> torch.Tensor | None:
        """(k, rows) -> (k, columns); None where what the graph had saved is gone."""
        try:
            with compat.Undisturbed(), torch.no_grad():
                return self.recipe.pull(self.nodes, seeds)
        except RuntimeError:  # changed or freed since: the engine is asked, and says so
            return None


class Places:
    """Where some elements of a tensor lie, axis by axis, and the patch around them."""

    def __init__(self, elements: Elements, shape: Shape) -> None:
        self.along: Positions = np.array(np.unravel_index(elements.positions, shape))  # (axes, elements)
        low, high = self.along.min(1).tolist(), self.along.max(1).tolist()
        self.bounds: Box = tuple([(a, b + 1) for a, b in zip(low, high, strict=True)])

    def inside(self, box: Box) -> Positions:
        """Flat positions within a patch, -1 for those outside of it."""
        sizes = [b - a for a, b in box]
        within = self.along - np.array([[a] for a, _ in box])
        if box == self.bounds:
            return np.ravel_multi_index(tuple(within), sizes)
        found = np.ravel_multi_index(tuple(within), sizes, mode="clip")
        return np.where((within >= 0).all(0) & (within < np.array(sizes)[:, None]).all(0), found, -1)


class Recipe:
    """What to do with each tensor between y and x, and where rows and columns lie in the patches of the two ends."""

    def __init__(self, operations: Operations, boxes: list[Box], rows: Places, columns: Places) -> None:
        self.work = sum([one.work(box) for one, box in zip(operations[:-1], boxes[:-1], strict=True)])
        self.whole = sum([one.whole_work for one in operations[:-1]])
        self.steps: list[tuple[int, int, Pull]] = [
            (later, earlier, local.puller(one, k, operations[earlier].shape, boxes[later], boxes[earlier]))
            for later, one in enumerate(operations[:-1])
            for k, earlier in one.sources
        ]
        self.start = tuple(b - a for a, b in boxes[0])
        place = rows.inside(boxes[0])
        kept = None if place.min() >= 0 else np.flatnonzero(place >= 0)  # rows outside cannot reach the columns
        self._kept = None if kept is None else torch.from_numpy(kept)
        self._rows = torch.from_numpy(place if kept is None else place[kept])
        place = columns.inside(boxes[-1])
        all_of_it = math.prod(b - a for a, b in boxes[-1]) == len(place) and bool((np.diff(place) == 1).all())
        self._columns = None if all_of_it else torch.from_numpy(place)

    def pull(self, nodes: list[Any], seeds: torch.Tensor) -> torch.Tensor:
        held: dict[int, torch.Tensor] = {0: self._laid(seeds)}
        for later, earlier, pull in self.steps:
            piece = pull(nodes[later], held[later])
            before = held.get(earlier)
            held[earlier] = piece if before is None else before + piece
        found = held[len(nodes) - 1].reshape(len(seeds), -1)
        return found if self._columns is None else found.index_select(1, self._columns.to(seeds.device))

    def _laid(self, seeds: torch.Tensor) -> torch.Tensor:
        """Weights of the rows as a patch of y."""
        if self._kept is not None:
            seeds = seeds.index_select(1, self._kept.to(seeds.device))
        patch = torch.zeros(len(seeds), math.prod(self.start), dtype=seeds.dtype, device=seeds.device)
        patch.index_add_(1, self._rows.to(seeds.device), seeds)  # a row may be asked for twice
        return patch.view(len(patch), *self.start)


def cone(y: Value, rows: Elements, x: Value, columns: Elements) -> Cone | None:
    """None where something between y and x is not known to be local, or where the two cannot meet."""
    start, end = ((value.key.edge.node, value.key.edge.output_nr) for value in (y, x))
    walked = walk(start, end, most=MOST_LAYERS, known=local.may_be_local)
    try:
        operations = None if walked is None else _read(*walked)
    except RuntimeError:  # weights that were changed or freed since
        return None
    if walked is None or operations is None:
        return None
    found = recipe(operations, rows, columns, _listed(rows), _listed(columns))
    return None if found is None else Cone(found, [node for node, _ in walked[0]])


def _read(spots: list[Spot], sources: list[Sources]) -> Operations | None:
    """The graph as plain data; None where one of its operations is not known to be local."""
    shapes = [local.shape_of(spot) for spot in spots]
    if len({node for node, _ in spots}) < len(spots):
        return None  # two results of one operation: none of ours has two
    found = [local.read(spot[0], shape, of, shapes) for spot, shape, of in zip(spots[:-1], shapes, sources, strict=False)]
    known = [one for one in found if one is not None]
    return (*known, Operation("x", shapes[-1], ())) if len(known) == len(found) else None


def _listed(elements: Elements) -> bytes | None:
    return None if elements.listed is None else elements.listed.tobytes()


@lru_cache(maxsize=KEPT)
def recipe(operations: Operations, rows: Elements, columns: Elements, *listed: bytes | None) -> Recipe | None:
    """The patches between rows and columns; None where these cannot meet.

    `listed` tells apart what two Elements do not: lists of as many positions.
    """
    shapes = [one.shape for one in operations]
    of_y, of_x = Places(rows, shapes[0]), Places(columns, shapes[-1])
    reach: dict[int, Box] = {0: of_y.bounds}
    for later, one in enumerate(operations):
        for _, earlier in one.sources:
            reach[earlier] = _joined(reach.get(earlier), local.back(one, shapes[earlier], reach[later]))
    last = len(operations) - 1
    ahead: dict[int, Box] = {last: of_x.bounds}
    for later in range(last - 1, -1, -1):
        for _, earlier in operations[later].sources:
            box = local.forth(operations[later], shapes[earlier], ahead[earlier])
            ahead[later] = _joined(ahead.get(later), box)
    boxes = [_common(reach[number], ahead[number]) for number in range(len(operations))]
    if any(a >= b for box in set(boxes) for a, b in box):
        return None  # exact zeros, which the engine says too
    boxes[last] = ahead[last]
    return Recipe(operations, boxes, of_y, of_x)


def _joined(one: Box | None, other: Box) -> Box:
    if one is None:
        return other
    return tuple([(min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)])


def _common(one: Box, other: Box) -> Box:
    return tuple([(a if a > c else c, b if b < d else d) for (a, b), (c, d) in zip(one, other, strict=True)])
