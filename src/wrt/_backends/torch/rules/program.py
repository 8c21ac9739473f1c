"""The rules of one question, in order: from y down to every x."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from wrt._backends.torch.apart import may_be_apart, saved_plainly
from wrt._backends.torch.compat import ACCUMULATE, made
from wrt._backends.torch.nodes import Node, NoRule, Spot
from wrt._backends.torch.rules.batch import Batch, Tensor
from wrt._backends.torch.rules.families import Link, Rule, Same, Slots
from wrt._backends.torch.rules.proof import PASSING, holds, key_of, known_of, passes
from wrt._backends.torch.rules.table import BY_KIND

MOST_NODES = 20_000
UNSETTLED: Any = object()

Step = tuple[Rule, Node, Slots, list[Link]]


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
        passed = {slot for _, _, slots, _ in steps for _, slot in slots} if len(ends) > 1 else ()
        self._inner = frozenset([slot for slot in ends if slot in passed])  # an x on the way to another one

    def pull(self, seeds: Tensor) -> list[Tensor | None]:
        """(k, *y.shape) -> (k, *x.shape) for each x, None where nothing leads there."""
        batch = Batch(seeds.shape[0], self.spots, self.loose)
        held, inner = batch.held, self._inner
        held[self.start] = seeds
        found: dict[int, Tensor | None] = {}
        with torch.no_grad():
            for rule, node, slots, links in self.steps:
                if inner:
                    for _, slot in slots:
                        if slot in inner:
                            found[slot], batch.ours[slot] = held[slot], False
                rule.apply(batch, node, slots, links)
                for _, slot in slots:
                    held[slot] = None
        return [None if slot is None else self._checked(slot, found.get(slot, held[slot])) for slot in self.ends]

    def _checked(self, slot: int, gradient: Any) -> Tensor:
        node, output = self.spots[slot]
        expected = node._input_metadata[output]
        if type(gradient) is not Tensor or gradient.dtype is not expected.dtype or gradient.device != expected.device:
            raise NoRule("a gradient of another kind than x")
        pulled: Tensor = gradient.reshape(gradient.shape[0], *expected.shape)
        return pulled


def program(start: Spot, ends: Sequence[Spot]) -> Program | None:
    """The steps from y to every x; None where one of them has no rule, or where nothing leads to any x.

    Nodes that lead to no x are not looked at closely, and nothing is computed for them.
    """
    layout = _Layout(ends)
    if start in layout.ends or not layout.walk(start[0]):
        return None
    first = layout.begin(start)
    steps, spots = layout.steps, layout.spots
    steps.reverse()
    metadata = start[0]._input_metadata[start[1]]
    known = known_of((metadata.dtype, metadata.device.type))
    look = may_be_apart()
    for rule, node, slots, links in steps:
        if look and not saved_plainly(node):
            return None
        key = key_of(rule, node, slots, links)
        found = known.get(key)
        if found is None:
            found = holds(rule, node, slots, links, spots) if rule.serves(slots, links) else False
            if found is not None:
                known[key] = found
        if not found:
            return None
    arrive = [layout.slot(end) for end in ends]
    return Program(steps, spots, layout.loose, first, arrive, layout.operations)


class _Layout:
    """Which tensors lie between y and x, a slot for each, and the steps between them, those next to x first.

    A node that passes a gradient on as it is, perhaps in another shape, is no step: what is made from it takes the slot of
    what it was made from.
    """

    def __init__(self, ends: Sequence[Spot]) -> None:
        self.ends: dict[Spot, int] = dict.fromkeys(ends, -1)
        self.steps: list[Step] = []
        self.spots: list[Spot] = []
        self.loose: list[bool] = []
        self.state: dict[Node | None, Slots | int | None] = {None: None}
        """Of each node that was settled: its outputs that are used; the slot it shares; None where no x lies behind."""
        self.operations = 0
        if len(ends) == 1:
            self.state[ends[0][0]] = None

    def walk(self, start: Node) -> bool:
        """Every node that led to y, each after what it was made from; False where a rule is missing or no x is met."""
        state = self.state
        edges: dict[Node, Sequence[Spot]] = {}
        seen = {start, *state}
        nodes = [start]
        for node in nodes:  # grows while it is walked
            edges[node] = sources = node.next_functions
            for source, _ in sources:
                if source not in seen:
                    seen.add(source)
                    if type(source) is ACCUMULATE:
                        state[source] = None
                    else:
                        nodes.append(source)
            if len(nodes) > MOST_NODES:
                return False
        self.operations = len(nodes)
        nodes.sort(key=made)
        return self._settle(nodes, edges) and state[start] is not None

    def _settle(self, nodes: Sequence[Node], edges: dict[Node, Sequence[Spot]]) -> bool:
        """Note how each node leads to x; False where one does and has no rule, or where one was made out of turn.

        As many steps as there are operations: nothing is called here that can be written down.
        """
        state, ends, spots, loose = self.state, self.ends, self.spots, self.loose
        for node in nodes:
            links: list[Link] = []
            for k, spot in enumerate(edges[node]):
                there = state.get(spot[0], UNSETTLED)
                if there is None:
                    if spot in ends:
                        links.append((k, self._end(spot), spot))
                elif type(there) is int:
                    loose[there] = True
                    links.append((k, there, spot))
                elif there is UNSETTLED:
                    return False
                elif there:
                    links.append((k, self._output(there, spot), spot))
                else:
                    there.append((spot[1], len(spots)))
                    links.append((k, len(spots), spot))
                    spots.append(spot)
                    loose.append(False)
            if not links:
                state[node] = None
                continue
            rule = BY_KIND[type(node)]
            if rule is None:
                return False
            if rule.loose:
                for _, slot, _ in links:
                    loose[slot] = True
                if type(rule) is Same and (node, 0) not in ends:
                    if type(node) not in PASSING and not passes(node, links):
                        return False
                    state[node] = links[0][1]
                    continue
            slots: Slots = []
            state[node] = slots
            self.steps.append((rule, node, slots, links))
        return True

    def _slot(self, spot: Spot) -> int:
        self.spots.append(spot)
        self.loose.append(False)
        return len(self.spots) - 1

    def _end(self, spot: Spot) -> int:
        if self.ends[spot] < 0:
            self.ends[spot] = self._slot(spot)
        return self.ends[spot]

    def _output(self, outputs: Slots, spot: Spot) -> int:
        """The slot of an output of a node that leads to x."""
        for output, slot in outputs:
            if output == spot[1]:
                return slot
        slot = self._slot(spot)
        outputs.append((spot[1], slot))
        return slot

    def begin(self, start: Spot) -> int:
        """The slot of y."""
        there: Any = self.state[start[0]]
        slot: int = self._output(there, start) if type(there) is list else there
        self.loose[slot] = True
        return slot

    def slot(self, end: Spot) -> int | None:
        """Where the gradient of an x arrives."""
        there = self.state.get(end[0])
        if type(there) is list:
            return dict(there).get(end[1])
        slot = self.ends[end]
        return None if slot < 0 else slot
