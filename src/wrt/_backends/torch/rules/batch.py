"""The gradients of a batch on their way from y to x."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from wrt._backends.torch.nodes import Node, NoRule, Spot
from wrt._backends.torch.rules.extent import shaped, shaped_like

Tensor: TypeAlias = torch.Tensor


class Batch:
    """k gradients for each tensor on the way, (k, *shape), one slot a tensor.

    What counts is the order of the numbers: in slots that are `loose` a gradient may have the shape of a view, and
    whoever needs the shape gives it (`shaped`). `ours` tells of each slot whether nobody else reads its memory, so that
    it may be written.
    """

    __slots__ = ("held", "loose", "ours", "rows")

    def __init__(self, rows: int, loose: Sequence[bool]) -> None:
        self.rows = rows
        self.loose = loose
        self.held: list[Any] = [None] * len(loose)
        self.ours = [False] * len(loose)

    def carry(self, steps: Sequence[Any]) -> None:
        """Take these steps, one after another."""
        held, ours, loose = self.held, self.ours, self.loose
        for rule, node, slot, k, into, spot, last in steps:
            if rule.places:
                rule.place(self, node, slot, k, into, spot, last)
                continue
            gradient = held[slot]
            if loose[slot] and not rule.loose:
                like = rule.like
                gradient = shaped_like(gradient, getattr(node, like)) if like else shaped(gradient, node)
            pulled, alone = rule.carry(node, gradient, last and ours[slot], k, spot)
            if last:
                held[slot] = None
            elif not alone:
                ours[slot] = False  # whoever takes it next finds that it is read elsewhere too
            if held[into] is None:
                held[into], ours[into] = pulled, alone
            else:
                self.give(into, pulled, alone)

    def taken(self, slot: int, node: Node, output: int = 0) -> Tensor:
        """The gradient of what a node gave, which nobody needs afterwards, in the shape of that."""
        gradient: Tensor = self.held[slot]
        self.held[slot] = None
        return shaped(gradient, node, output) if self.loose[slot] else gradient

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
