"""The nodes between x and y in the order in which tangents pass them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge

from wrt._backends.torch.apart import may_be_apart, saved_plainly
from wrt._backends.torch.compat import is_leaf_node
from wrt._backends.torch.forward.rules import RULES, Rule, Shape, Tensor
from wrt._backends.torch.nodes import ByKind, Node, NoRule, Spot

MOST_NODES = 5000
BY_KIND = ByKind(RULES)


class Step(NamedTuple):
    """One node: where its inputs are, None for a constant, and which of them nobody needs afterwards."""

    rule: Rule
    node: Node
    shape: Shape
    inputs: tuple[int | None, ...]
    spent: list[int]


class Program:
    """What leads from some Values to y; the first slots are theirs, the next those of the steps in turn."""

    def __init__(self, ends: int, steps: list[Step]) -> None:
        self.ends = ends
        self.steps = steps
        last: dict[int, Step] = {}
        for step in steps:
            for slot in step.inputs:
                if slot is not None:
                    last[slot] = step
        for slot, step in last.items():
            step.spent.append(slot)

    def push(self, tangents: Sequence[Tensor | None]) -> Tensor | None:
        """(k, *x.shape) for each x, None for zeros -> (k, *y.shape); None where nothing that moves leads to y.

        Raises NoRule where a node turns out to be another than its rule is for.
        """
        slots: list[Tensor | None] = list(tangents)
        everything_moves = not any(t is None for t in tangents)
        with torch.set_grad_enabled(False):
            try:
                for rule, node, shape, inputs, spent in self.steps:
                    moved = [None if slot is None else slots[slot] for slot in inputs]
                    moves = everything_moves or any(t is not None for t in moved)
                    slots.append(rule(node, moved, shape) if moves else None)
                    for slot in spent:
                        slots[slot] = None
            except (RuntimeError, IndexError, TypeError) as error:  # freed or changed since, or saved in another way
                raise NoRule(str(error)) from error
        return slots[-1]


def program(out: GradientEdge, ins: Sequence[GradientEdge | torch.Tensor]) -> Program | None:
    """The rules from some places to another; None where an operation has none, or where none of the places leads there.

    Nor are there any for an operation whose tensors were saved elsewhere: each look at one may take a whole run.
    """
    start: Spot = (out.node, out.output_nr)
    leaves = {id(one): k for k, one in enumerate(ins) if isinstance(one, torch.Tensor)}
    slots: dict[Spot, int | None] = {
        (one.node, one.output_nr): k for k, one in enumerate(ins) if not isinstance(one, torch.Tensor)
    }
    if start in slots:
        return None
    slots[None, 0] = None  # an input without history
    dtype = _metadata(start).dtype
    if dtype.is_complex:  # there, what pulls a gradient pushes the conjugate
        return None
    apart = may_be_apart()
    steps: list[Step] = []
    waiting = [start]
    while waiting:  # a node is done once everything it was made from is
        spot = waiting[-1]
        if spot in slots:
            waiting.pop()
            continue
        node = spot[0]
        sources = node.next_functions
        missing = _unseen(sources, slots, leaves)
        if missing:
            waiting += missing
            if len(slots) + len(waiting) > MOST_NODES:
                return None
            continue
        inputs = tuple([slots[source] for source in sources])
        if inputs.count(None) == len(inputs):
            slots[spot] = None
            continue
        rule, metadata = BY_KIND[type(node)], _metadata(spot)
        if rule is None or spot[1] or metadata.dtype != dtype or (apart and not saved_plainly(node)):
            return None
        slots[spot] = len(ins) + len(steps)
        steps.append(Step(rule, node, tuple(metadata.shape), inputs, []))
    return Program(len(ins), steps) if slots[start] is not None else None


def _unseen(sources: Sequence[Spot], slots: dict[Spot, int | None], leaves: dict[int, int]) -> list[Spot]:
    """What has to be looked at before; a leaf is one of the places or a constant, which shows at once."""
    found = []
    for source in sources:
        if source in slots:
            continue
        node = source[0]
        if is_leaf_node(node):
            slots[source] = leaves.get(id(node.variable))
        else:
            found.append(source)
    return found


def _metadata(spot: Spot) -> Any:
    return spot[0]._input_metadata[spot[1]]
