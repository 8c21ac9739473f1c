"""The few shapes that a rule can have: how a node's gradient becomes that of what the node was made from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import torch

from wrt._backends.torch.nodes import Node, NoRule, Spot
from wrt._backends.torch.rules.batch import Batch, Tensor

linear = torch._C._nn.linear  # linear(a, b) is a @ b.T, of all but the last axis of a at once

Link = tuple[int, int, Spot]
"""An input of a node that leads to x: its number, the slot of its numbers, and the tensor it was.

The slot may be that of another tensor, of which the input is a view.
"""

Slots = list[tuple[int, int]]
"""The outputs of a node that lead to y: their numbers and slots."""

Pull = Callable[[Node, Tensor, bool], Tensor]
"""(k, *output.shape) -> (k, *input.shape); whether the memory of what comes in is free to be written to.

Fresh memory has to be asked for page by page, which for a large batch takes longer than to compute.
"""


class Rule(Protocol):
    """All about one kind of node."""

    settings: tuple[str, ...]
    """What of a node its rule is proven for: the names under which torch saved it."""

    loose: bool
    """Whether it passes gradients on in the shape in which they came."""

    def serves(self, slots: Slots, links: Sequence[Link]) -> bool:
        """Whether gradients of these outputs can be pulled to these inputs."""

    def apply(self, batch: Batch, node: Node, slots: Slots, links: Sequence[Link]) -> None:
        """Take the gradients of the outputs, give those of the inputs."""


class Same:
    """The same numbers in the same order, in whatever shape: no step at all, unless somebody asks for what is here."""

    settings: tuple[str, ...] = ()
    loose = True

    def serves(self, slots: Slots, links: Sequence[Link]) -> bool:
        return _alone(slots) and _first(links)

    def apply(self, batch: Batch, node: Node, slots: Slots, links: Sequence[Link]) -> None:
        slot = slots[0][1]
        gradient: Any = batch.held[slot]
        batch.give(links[0][1], gradient, batch.ours[slot])


class One:
    """One input, whose gradient has the shape it should have.

    It lies in memory of its own, it is a view of what came in, or each number of that was stretched to several.
    """

    loose = False

    def __init__(self, pull: Pull, *settings: str, gives: Literal["fresh", "view", "stretched"] = "fresh") -> None:
        self.pull = pull
        self.settings = settings
        self.fresh, self.view = gives == "fresh", gives == "view"

    def serves(self, slots: Slots, links: Sequence[Link]) -> bool:
        return _alone(slots) and _first(links)

    def apply(self, batch: Batch, node: Node, slots: Slots, links: Sequence[Link]) -> None:
        slot = slots[0][1]
        free = batch.ours[slot]
        pulled = self.pull(node, batch.shaped(slot), free)
        batch.give(links[0][1], pulled, self.fresh or (self.view and free))


class Many:
    """Several inputs, each with a rule of its own; what was stretched on the way there is summed up."""

    loose = False

    def __init__(self, *pulls: Pull, settings: tuple[str, ...] = ()) -> None:
        self.pulls = pulls
        self.settings = settings

    def serves(self, slots: Slots, links: Sequence[Link]) -> bool:
        return _alone(slots) and all(k < len(self.pulls) for k, _, _ in links)

    def apply(self, batch: Batch, node: Node, slots: Slots, links: Sequence[Link]) -> None:
        slot = slots[0][1]
        gradient = batch.shaped(slot)
        last = links[-1][0] if batch.ours[slot] else -1
        for k, into, spot in links:
            pulled = self.pulls[k](node, gradient, k == last)
            batch.give(into, fitted(spot, pulled), k == last or pulled is not gradient)


class Terms:
    """Inputs that were added up: each has the gradient of the sum, times a number."""

    settings: tuple[str, ...] = ()
    loose = True

    def __init__(self, *factors: Callable[[Node], float]) -> None:
        self.factors = factors

    def serves(self, slots: Slots, links: Sequence[Link]) -> bool:
        return _alone(slots) and all(k < len(self.factors) for k, _, _ in links)

    def apply(self, batch: Batch, node: Node, slots: Slots, links: Sequence[Link]) -> None:
        slot = slots[0][1]
        gradient: Any = batch.held[slot]
        ours = batch.ours[slot] and len(links) == 1
        for k, into, (source, output) in links:
            factor = self.factors[k](node)
            expected = source._input_metadata[output]
            if expected.dtype is not gradient.dtype:
                raise NoRule(f"{gradient.dtype} and {expected.dtype} meet")
            pulled = gradient
            if math.prod(expected.shape) * batch.rows != gradient.numel():
                pulled = summed(batch.shaped(slot), expected.shape)
            if factor != 1:
                pulled = times(pulled, factor, ours)
            batch.give(into, pulled, ours or pulled is not gradient)


class Product:
    """A matrix product and perhaps a term: the left factor's gradient is that of all rows of all rows in one product.

    `left` and `right` are the numbers of the two inputs, of which the other one was saved under the names given.
    """

    settings: tuple[str, ...] = ()
    loose = True

    def __init__(self, left: int, saved_left: str, saved_right: str) -> None:
        self.left = left
        self.saved_left, self.saved_right = saved_left, saved_right

    def serves(self, slots: Slots, links: Sequence[Link]) -> bool:
        return _alone(slots)

    def apply(self, batch: Batch, node: Node, slots: Slots, links: Sequence[Link]) -> None:
        slot, left = slots[0][1], self.left
        gradient: Any = batch.held[slot]
        for k, into, spot in links:
            if k == left:
                matrix = getattr(node, self.saved_right)  # (m, p)
                if gradient.shape[-1] != matrix.shape[1] or gradient.dim() == 1:
                    gradient = batch.shaped(slot)
                pulled = linear(gradient, matrix)  # (..., m) = (..., p) @ (p, m)
            elif k > left:
                pulled = torch.matmul(getattr(node, self.saved_left).t(), batch.shaped(slot))
            else:
                batch.give(into, *self._term(node, batch.shaped(slot), spot))
                continue
            if left and node._saved_alpha != 1:
                pulled = pulled.mul_(node._saved_alpha)
            batch.give(into, pulled, True)

    @staticmethod
    def _term(node: Node, gradient: Tensor, spot: Spot) -> tuple[Tensor, bool]:
        if node._saved_beta != 1:
            return fitted(spot, gradient * node._saved_beta), True
        return fitted(spot, gradient), False


class Written:
    """One input, of which the output is a part: its gradient is added to that part of the input's."""

    loose = False

    def __init__(self, add: Callable[[Node, Tensor, Tensor], None], *settings: str) -> None:
        self.add = add
        self.settings = settings

    def serves(self, slots: Slots, links: Sequence[Link]) -> bool:
        return _alone(slots) and _first(links)

    def apply(self, batch: Batch, node: Node, slots: Slots, links: Sequence[Link]) -> None:
        gradient = batch.shaped(slots[0][1])
        self.add(node, gradient, batch.room(links[0][1], links[0][2], gradient))


class Pieces:
    """One input that was taken apart: the gradient of each piece is added to its place."""

    loose = False

    def __init__(self, place: Callable[[Node, Tensor, int], Tensor], *settings: str) -> None:
        self.place = place
        self.settings = settings

    def serves(self, slots: Slots, links: Sequence[Link]) -> bool:
        return _first(links)

    def apply(self, batch: Batch, node: Node, slots: Slots, links: Sequence[Link]) -> None:
        for output, slot in slots:
            gradient = batch.shaped(slot)
            self.place(node, batch.room(links[0][1], links[0][2], gradient), output).add_(gradient)


class Joined:
    """Inputs that lie one behind the other: each has its piece of the gradient."""

    loose = False

    def __init__(self, pieces: Callable[[Node, Tensor], Sequence[Tensor]], *settings: str) -> None:
        self.pieces = pieces
        self.settings = settings

    def serves(self, slots: Slots, links: Sequence[Link]) -> bool:
        return _alone(slots)

    def apply(self, batch: Batch, node: Node, slots: Slots, links: Sequence[Link]) -> None:
        slot = slots[0][1]
        pieces = self.pieces(node, batch.shaped(slot))
        for k, into, spot in links:  # pieces do not overlap: whose the whole is, his is each of them
            batch.give(into, fitted(spot, pieces[k]), batch.ours[slot])


def _alone(slots: Slots) -> bool:
    return len(slots) == 1 and slots[0][0] == 0


def _first(links: Sequence[Link]) -> bool:
    """Whether the first input is the only one that is wanted: what a layer norm knows of x is not so for its weight."""
    return len(links) == 1 and links[0][0] == 0


def fitted(spot: Spot, gradient: Tensor) -> Tensor:
    """A gradient in the shape of the tensor it is for; refused where numbers of another kind would be needed."""
    node, output = spot
    expected = node._input_metadata[output]
    if expected.dtype is not gradient.dtype:
        raise NoRule(f"{gradient.dtype} and {expected.dtype} meet")
    shape = tuple(expected.shape)
    return gradient if gradient.shape[1:] == shape else summed(gradient, shape)


def summed(gradient: Tensor, shape: Sequence[int]) -> Tensor:
    """(k, *stretched) -> (k, *shape): the sum over everything that one number of `shape` was stretched to."""
    leading = gradient.dim() - 1 - len(shape)
    axes = [*range(1, 1 + leading)]
    axes += [k for k, n in enumerate(shape, 1 + leading) if n == 1 and gradient.shape[k] != 1]
    pulled = gradient.sum(axes, keepdim=True) if axes else gradient
    return pulled.reshape(gradient.shape[0], *shape)


def times(g: Tensor, factor: Tensor | float, free: bool) -> Tensor:
    """A gradient times something, where it lies if it may be written to."""
    return g.mul_(factor) if free else g * factor


def over(g: Tensor, divisor: Tensor, free: bool) -> Tensor:
    """A gradient divided by something, likewise."""
    return g.div_(divisor) if free else g / divisor
