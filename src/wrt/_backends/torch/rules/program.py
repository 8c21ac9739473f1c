"""The rules of one question, in order: from y down to every x."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from wrt._backends.torch.apart import may_be_apart, saved_plainly
from wrt._backends.torch.nodes import NoRule, Spot
from wrt._backends.torch.rules.batch import Batch, Tensor
from wrt._backends.torch.rules.extent import in_shape
from wrt._backends.torch.rules.families import Step
from wrt._backends.torch.rules.layout import Layout
from wrt._backends.torch.rules.proof import holds, known_of


class Program:
    """Steps that carry a batch of gradients from y to each x; `ends` are the slots where those of x arrive."""

    __slots__ = ("_inner", "ends", "loose", "operations", "spots", "start", "steps")

    def __init__(
        self,
        steps: list[Step],
        spots: list[Spot],
        loose: list[bool],
        start: int,
        ends: list[int | None],
        operations: int,
    ) -> None:
        self.operations = operations
        self.steps = steps
        self.spots = spots
        self.loose = loose
        self.start = start
        self.ends = ends
        passed = {one for step in steps for one in _held_by(step[2])} if len(ends) > 1 else ()
        self._inner = frozenset([slot for slot in ends if slot is not None and slot in passed])  # an x on the way to another one

    def pull(self, seeds: Tensor, *, spent: bool = False) -> list[Tensor | None]:
        """(k, *y.shape) -> (k, *x.shape) for each x, None where nothing leads there.

        `spent`: nobody needs the seeds any more, and they may be written to.
        """
        batch = Batch(seeds.shape[0], self.loose)
        batch.held[self.start], batch.ours[self.start] = seeds, spent
        found: dict[int, Tensor] = {}
        with torch.set_grad_enabled(False):  # made in half the time of `no_grad`
            if self._inner:
                self._carry(batch, found)
            else:
                batch.carry(self.steps)
        held = batch.held
        return [None if slot is None else _checked(self.spots[slot], found.get(slot, held[slot])) for slot in self.ends]

    def _carry(self, batch: Batch, found: dict[int, Tensor]) -> None:
        """Take all steps, and keep the gradients of those x that are passed on the way."""
        for step in self.steps:
            for one in self._inner.intersection(_held_by(step[2])).difference(found):
                found[one], batch.ours[one] = batch.held[one], False
            batch.carry((step,))


def _checked(end: Spot, gradient: Any) -> Tensor:
    node, output = end
    expected = node._input_metadata[output]
    if type(gradient) is not Tensor or gradient.dtype is not expected.dtype or gradient.device != expected.device:
        raise NoRule("a gradient of another kind than x")
    return in_shape(gradient, tuple(expected.shape))


def program(start: Spot, ends: Sequence[Spot]) -> Program | None:
    """The steps from y to every x; None where one of them has no rule, or where nothing leads to any x.

    Nodes that lead to no x are not looked at closely, and nothing is computed for them.
    """
    if start in ends:
        return None
    metadata = start[0]._input_metadata[start[1]]
    layout = Layout(ends, known_of((metadata.dtype, metadata.device.type)))
    try:
        first = layout.walk(start)
    except NoRule:
        return None
    steps = layout.steps
    if first is None or (may_be_apart() and not all(saved_plainly(step[1]) for step in steps)):
        return None
    for key, (begin, end) in layout.unproven.items():
        found = layout.known.get(key)
        if found is None:
            found = holds(steps[begin:end][::-1])
            if found is not None:
                layout.known[key] = found
        if not found:
            return None
    steps.reverse()
    return Program(steps, layout.spots, layout.loose, first, [layout.arrival(end) for end in ends], layout.operations)


def _held_by(slot: Any) -> list[int]:
    """The slot, or the slots, that a step takes from."""
    return [slot] if type(slot) is int else [one for _, one in slot]
