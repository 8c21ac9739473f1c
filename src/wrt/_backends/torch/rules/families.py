"""The few shapes that a rule can have: how a node's gradient becomes that of what the node was made from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import torch

from wrt._backends.torch.nodes import Node, NoRule, Spot
from wrt._backends.torch.rules.batch import Batch, Tensor

linear = torch._C._nn.linear  # linear(a, b) is a @ b.T, of all but the last axis of a at once

Slot = int
"""Where the gradients of one tensor are held."""

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

    def serves(self, inputs: Sequence[int]) -> bool:
        """Whether gradients can be pulled to just these inputs."""

    def apply(self, batch: Batch, node: Node, slot: Any, k: int, into: Slot, spot: Spot, last: bool) -> None:
        """Take the gradient of the output, give that of one input: its number, its slot, and the tensor it was.

        The slot may be that of another tensor, of which the input is a view. `last`: nobody needs what was taken any more.
        For nodes with several outputs (`Pieces`), `slot` lists their numbers and slots.
        """


Step = tuple[Rule, Node, Any, int, Slot, Spot, bool]
"""A rule and what it is applied to: one step for each input of a node that leads to x."""


class Same:
    """The same numbers in the same order, in whatever shape."""

    settings: tuple[str, ...] = ()
    loose = True

    def serves(self, inputs: Sequence[int]) -> bool:
        return _first(inputs)

    def apply(self, batch: Batch, node: Node, slot: Slot, k: int, into: Slot, spot: Spot, last: bool) -> None:
        batch.give(into, batch.held[slot], batch.ours[slot])
        batch.held[slot] = None


class One:
    """One input, whose gradient has the shape it should have.

    It lies in memory of its own, it is a view of what came in, or each number of that was stretched to several.
    """

    loose = False

    def __init__(self, pull: Pull, *settings: str, gives: Literal["fresh", "view", "stretched"] = "fresh") -> None:
        self.pull = pull
        self.settings = settings
        self.fresh, self.view = gives == "fresh", gives == "view"

    def serves(self, inputs: Sequence[int]) -> bool:
        return _first(inputs)

    def apply(self, batch: Batch, node: Node, slot: Slot, k: int, into: Slot, spot: Spot, last: bool) -> None:
        free = batch.ours[slot]
        pulled = self.pull(node, batch.shaped(slot), free)
        batch.held[slot] = None
        batch.give(into, pulled, self.fresh or (self.view and free))


class Many:
    """Several inputs, each with a rule of its own; what was stretched on the way there is summed up.

    A rule gives new memory, or the very gradient that it was given.
    """

    loose = False

    def __init__(self, *pulls: Pull, settings: tuple[str, ...] = ()) -> None:
        self.pulls = pulls
        self.settings = settings

    def serves(self, inputs: Sequence[int]) -> bool:
        return max(inputs) < len(self.pulls)

    def apply(self, batch: Batch, node: Node, slot: Slot, k: int, into: Slot, spot: Spot, last: bool) -> None:
        gradient = batch.shaped(slot)
        free = last and batch.ours[slot]
        pulled = self.pulls[k](node, gradient, free)
        batch.pass_on(slot, last, pulled is gradient)
        batch.give(into, fitted(spot, pulled), free or pulled is not gradient)


class Terms:
    """Inputs that were added up: each has the gradient of the sum, times a number."""

    settings: tuple[str, ...] = ()
    loose = True

    def __init__(self, *factors: Callable[[Node], float]) -> None:
        self.factors = factors

    def serves(self, inputs: Sequence[int]) -> bool:
        return max(inputs) < len(self.factors)

    def apply(self, batch: Batch, node: Node, slot: Slot, k: int, into: Slot, spot: Spot, last: bool) -> None:
        pulled = gradient = batch.held[slot]
        expected = spot[0]._input_metadata[spot[1]]
        if expected.dtype is not gradient.dtype:
            raise NoRule(f"{gradient.dtype} and {expected.dtype} meet")
        if math.prod(expected.shape) * batch.rows != gradient.numel():
            pulled = summed(batch.shaped(slot), expected.shape)
        free = last and batch.ours[slot]
        factor = self.factors[k](node)
        if factor != 1:
            pulled = times(pulled, factor, free or pulled is not gradient)
        batch.pass_on(slot, last, pulled is gradient)
        batch.give(into, pulled, free or pulled is not gradient)


class Product:
    """A matrix product and perhaps a term: the left factor's gradient is that of all rows of all rows in one product.

    `left` and `right` are the numbers of the two inputs, of which the other one was saved under the names given.
    """

    settings: tuple[str, ...] = ()
    loose = True

    def __init__(self, left: int, saved_left: str, saved_right: str) -> None:
        self.left = left
        self.saved_left, self.saved_right = saved_left, saved_right

    def serves(self, inputs: Sequence[int]) -> bool:
        return True

    def apply(self, batch: Batch, node: Node, slot: Slot, k: int, into: Slot, spot: Spot, last: bool) -> None:
        gradient: Any = batch.held[slot]
        left = self.left
        if k < left:
            gradient = batch.shaped(slot)
            term = gradient if node._saved_beta == 1 else gradient * node._saved_beta
            batch.pass_on(slot, last, True)
            batch.give(into, fitted(spot, term), term is not gradient)
            return
        if k == left:
            matrix = getattr(node, self.saved_right)  # (m, p)
            if gradient.shape[-1] != matrix.shape[1] or gradient.dim() == 1:
                gradient = batch.shaped(slot)
            pulled = linear(gradient, matrix)  # (..., m) = (..., p) @ (p, m)
        else:
            pulled = torch.matmul(getattr(node, self.saved_left).t(), batch.shaped(slot))
        if left and node._saved_alpha != 1:
            pulled = pulled.mul_(node._saved_alpha)
        if last:
            batch.held[slot] = None
        batch.give(into, pulled, True)


class Written:
    """One input, of which the output is a part: its gradient is added to that part of the input's."""

    loose = False

    def __init__(self, add: Callable[[Node, Tensor, Tensor], None], *settings: str) -> None:
        self.add = add
        self.settings = settings

    def serves(self, inputs: Sequence[int]) -> bool:
        return _first(inputs)

    def apply(self, batch: Batch, node: Node, slot: Slot, k: int, into: Slot, spot: Spot, last: bool) -> None:
        gradient = batch.shaped(slot)
        self.add(node, gradient, batch.room(into, spot, gradient))
        batch.held[slot] = None


class Pieces:
    """One input that was taken apart: the gradient of each piece is added to its place."""

    loose = False

    def __init__(self, place: Callable[[Node, Tensor, int], Tensor], *settings: str) -> None:
        self.place = place
        self.settings = settings

    def serves(self, inputs: Sequence[int]) -> bool:
        return _first(inputs)

    def apply(self, batch: Batch, node: Node, slot: list[tuple[int, Slot]], k: int, into: Slot, spot: Spot, last: bool) -> None:
        room = batch.room(into, spot, batch.held[slot[0][1]])
        for output, held in slot:
            self.place(node, room, output).add_(batch.shaped(held))
            batch.held[held] = None


class Joined:
    """Inputs that lie one behind the other: each has its piece of the gradient."""

    loose = False

    def __init__(self, pieces: Callable[[Node, Tensor], Sequence[Tensor]], *settings: str) -> None:
        self.pieces = pieces
        self.settings = settings

    def serves(self, inputs: Sequence[int]) -> bool:
        return True

    def apply(self, batch: Batch, node: Node, slot: Slot, k: int, into: Slot, spot: Spot, last: bool) -> None:
        pieces: Any = batch.held[slot]
        if isinstance(pieces, torch.Tensor):  # cut once, for all of them
            pieces = batch.held[slot] = self.pieces(node, batch.shaped(slot))
        if last:
            batch.held[slot] = None
        # pieces do not overlap: whose the whole is, his is each of them
        batch.give(into, fitted(spot, pieces[k]), batch.ours[slot])


def _first(inputs: Sequence[int]) -> bool:
    """Whether the first input is the only one that is wanted: what a layer norm knows of x is not so for its weight."""
    return len(inputs) == 1 and inputs[0] == 0


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
