"""The few shapes that a rule can have: how a node's gradient becomes that of what the node was made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import torch

from wrt._backends.torch.nodes import Node, NoRule, Spot
from wrt._backends.torch.rules.batch import Batch, Tensor
from wrt._backends.torch.rules.extent import numbers, shaped

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
    """Whether it takes gradients in the shape in which they come."""

    places: bool
    """Whether it is a `Placing` one; the others are `Carrying`."""

    def serves(self, inputs: Sequence[int]) -> bool:
        """Whether gradients can be pulled to just these inputs."""


class Carrying(Rule, Protocol):
    """A rule that makes the gradient of one input at a time, from that of the only output."""

    like: str
    """The name of a saved tensor that has the shape of the output, where there is one."""

    def carry(self, node: Node, gradient: Tensor, free: bool, k: int, spot: Spot) -> tuple[Tensor, bool]:
        """What goes to input `k`, which was that tensor, and whether nobody else reads the memory of it.

        `free`: nobody needs what comes in any more, and it may be written to.
        """


class Placing(Rule, Protocol):
    """A rule that has to know where gradients are held: it writes to them, or it has several outputs."""

    def place(self, batch: Batch, node: Node, slot: Any, k: int, into: Slot, spot: Spot, last: bool) -> None:
        """Take the gradient of the output, give that of one input: its number, its slot, and the tensor it was.

        The slot may be that of another tensor, of which the input is a view. `last`: nobody needs what was taken any more.
        For nodes with several outputs (`Pieces`), `slot` lists their numbers and slots.
        """


Step = tuple[Any, Node, Any, int, Slot, Spot, bool]
"""A rule and what it is applied to: one step for each input of a node that leads to x."""


class Same:
    """The same numbers in the same order, in whatever shape."""

    settings: tuple[str, ...] = ()
    loose = True
    places = False
    like = ""

    def serves(self, inputs: Sequence[int]) -> bool:
        return _first(inputs)

    def carry(self, node: Node, gradient: Tensor, free: bool, k: int, spot: Spot) -> tuple[Tensor, bool]:
        return gradient, free


class One:
    """One input, whose gradient has the shape it should have.

    It lies in memory of its own, it is a view of what came in, or each number of that was stretched to several.
    """

    loose = places = False

    def __init__(
        self, pull: Pull, *settings: str, gives: Literal["fresh", "view", "stretched"] = "fresh", like: str = ""
    ) -> None:
        self.pull = pull
        self.settings = settings
        self.like = like
        self.fresh, self.view = gives == "fresh", gives == "view"

    def serves(self, inputs: Sequence[int]) -> bool:
        return _first(inputs)

    def carry(self, node: Node, gradient: Tensor, free: bool, k: int, spot: Spot) -> tuple[Tensor, bool]:
        return self.pull(node, gradient, free), self.fresh or (self.view and free)


class Many:
    """Several inputs, each with a rule of its own; what was stretched on the way there is summed up.

    A rule gives new memory, or the very gradient that it was given.
    """

    loose = places = False
    like = ""

    def __init__(self, *pulls: Pull, settings: tuple[str, ...] = ()) -> None:
        self.pulls = pulls
        self.settings = settings

    def serves(self, inputs: Sequence[int]) -> bool:
        return max(inputs) < len(self.pulls)

    def carry(self, node: Node, gradient: Tensor, free: bool, k: int, spot: Spot) -> tuple[Tensor, bool]:
        pulled = self.pulls[k](node, gradient, free)
        return fitted(spot, pulled), free or pulled is not gradient


class Terms:
    """Inputs that were added up: each has the gradient of the sum, times a number."""

    settings: tuple[str, ...] = ()
    loose = True
    places = False
    like = ""

    def __init__(self, *factors: Callable[[Node], float]) -> None:
        self.factors = factors

    def serves(self, inputs: Sequence[int]) -> bool:
        return max(inputs) < len(self.factors)

    def carry(self, node: Node, gradient: Tensor, free: bool, k: int, spot: Spot) -> tuple[Tensor, bool]:
        pulled = gradient
        if numbers(spot) * gradient.shape[0] != gradient.numel():
            pulled = summed(shaped(gradient, node), spot[0]._input_metadata[spot[1]].shape)
        factor = self.factors[k](node)
        if factor != 1:
            pulled = times(pulled, factor, free or pulled is not gradient)
        return pulled, free or pulled is not gradient


class Product:
    """A matrix product and perhaps a term: the left factor's gradient is that of all rows of all rows in one product.

    `left` and `right` are the numbers of the two inputs, of which the other one was saved under the names given.
    """

    settings: tuple[str, ...] = ()
    loose = True
    places = False
    like = ""

    def __init__(self, left: int, saved_left: str, saved_right: str) -> None:
        self.left = left
        self.saved_left, self.saved_right = saved_left, saved_right

    def serves(self, inputs: Sequence[int]) -> bool:
        return True

    def carry(self, node: Node, gradient: Tensor, free: bool, k: int, spot: Spot) -> tuple[Tensor, bool]:
        left = self.left
        if k == left:
            matrix = getattr(node, self.saved_right)  # (m, p)
            if gradient.shape[-1] != matrix.shape[1] or gradient.dim() == 1:
                gradient = shaped(gradient, node)
            pulled = linear(gradient, matrix)  # (..., m) = (..., p) @ (p, m)
        elif k > left:
            pulled = torch.matmul(getattr(node, self.saved_left).t(), shaped(gradient, node))
        else:
            term = gradient = shaped(gradient, node)
            if node._saved_beta != 1:
                term = gradient * node._saved_beta
            return fitted(spot, term), term is not gradient
        if left and node._saved_alpha != 1:
            pulled = pulled.mul_(node._saved_alpha)
        return pulled, True


class Written:
    """One input, of which the output is a part: its gradient is added to that part of the input's."""

    loose = False
    places = True

    def __init__(self, add: Callable[[Node, Tensor, Tensor], None], *settings: str) -> None:
        self.add = add
        self.settings = settings

    def serves(self, inputs: Sequence[int]) -> bool:
        return _first(inputs)

    def place(self, batch: Batch, node: Node, slot: Slot, k: int, into: Slot, spot: Spot, last: bool) -> None:
        gradient = batch.taken(slot, node)
        self.add(node, gradient, batch.room(into, spot, gradient))


class Pieces:
    """One input that was taken apart: the gradient of each piece is added to its place."""

    loose = False
    places = True

    def __init__(self, place: Callable[[Node, Tensor, int], Tensor], *settings: str) -> None:
        self.piece = place
        self.settings = settings

    def serves(self, inputs: Sequence[int]) -> bool:
        return _first(inputs)

    def place(self, batch: Batch, node: Node, slot: list[tuple[int, Slot]], k: int, into: Slot, spot: Spot, last: bool) -> None:
        room = batch.room(into, spot, batch.held[slot[0][1]])
        for output, held in slot:
            self.piece(node, room, output).add_(batch.taken(held, node, output))


class Joined:
    """Inputs that lie one behind the other: each has its piece of the gradient."""

    loose = False
    places = True

    def __init__(self, pieces: Callable[[Node, Tensor], Sequence[Tensor]], *settings: str) -> None:
        self.pieces = pieces
        self.settings = settings

    def serves(self, inputs: Sequence[int]) -> bool:
        return True

    def place(self, batch: Batch, node: Node, slot: Slot, k: int, into: Slot, spot: Spot, last: bool) -> None:
        pieces: Any = batch.held[slot]
        if isinstance(pieces, torch.Tensor):  # cut once, for all of them
            pieces = batch.held[slot] = self.pieces(node, shaped(pieces, node))
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
