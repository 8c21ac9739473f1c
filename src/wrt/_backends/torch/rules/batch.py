"""The gradients of a batch on their way from y to x."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from wrt._backends.torch.nodes import NoRule, Spot

Tensor: TypeAlias = torch.Tensor


class Batch:
    """k gradients for each tensor on the way, (k, *shape), one slot a tensor.

    What counts is the order of the numbers: in slots that are `loose` a gradient may have the shape of a view, and
    whoever needs the shape gives it (`shaped`). `ours` tells of each slot whether nobody else reads its memory, so that
    it may be written.
    """

    __slots__ = ("held", "loose", "ours", "rows", "spots")

    def __init__(self, rows: int, spots: Sequence[Spot], loose: Sequence[bool]) -> None:
        self.rows = rows
        self.spots = spots
        self.loose = loose
        self.held: list[Any] = [None] * len(spots)
        self.ours = [False] * len(spots)

    def shaped(self, slot: int) -> Tensor:
        """The gradient of a tensor in the shape of that tensor."""
        gradient: Tensor = self.held[slot]
        if self.loose[slot]:
            node, output = self.spots[slot]
            shape = tuple(node._input_metadata[output].shape)
            if gradient.shape[1:] != shape:
                return gradient.reshape(self.rows, *shape)
        return gradient

    def pass_on(self, slot: int, last: bool, shared: bool) -> None:
        """A gradient was taken: nobody needs it any more, or others do, who may find that it is read elsewhere too."""
        if last:
            self.held[slot] = None
        elif shared:
            self.ours[slot] = False

    def give(self, slot: int, gradient: Tensor, ours: bool) -> None:
        """One more contribution to the gradient of a tensor."""
        there = self.held[slot]
        if there is None:
            self.held[slot] = gradient
            self.ours[slot] = ours
            return
        if there.shape != gradient.shape:
            gradient = gradient.reshape(there.shape)
        if self.ours[slot]:
            there.add_(gradient)
        else:
            self.held[slot] = gradient.add_(there) if ours else there + gradient
            self.ours[slot] = True

    def room(self, slot: int, spot: Spot, like: Tensor) -> Tensor:
        """The gradient in a slot as far as it is known, in the shape of a tensor with its numbers, to be written to."""
        node, output = spot
        expected = node._input_metadata[output]
        if expected.dtype is not like.dtype:
            raise NoRule(f"{like.dtype} and {expected.dtype} meet")
        shape = (self.rows, *expected.shape)
        there = self.held[slot]
        if there is None:
            there = like.new_zeros(shape)
        elif not self.ours[slot]:
            there = there.reshape(shape).clone(memory_format=torch.contiguous_format)
        elif there.shape != shape:
            there = there.reshape(shape)
        self.held[slot] = there
        self.ours[slot] = True
        return there
