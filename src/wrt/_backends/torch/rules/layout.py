"""Which tensors lie between y and x, a slot for each, and the steps between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wrt._backends.torch.compat import ACCUMULATE, made
from wrt._backends.torch.nodes import Node, NoRule, Spot
from wrt._backends.torch.rules.families import Pieces, Slot, Step
from wrt._backends.torch.rules.proof import PASSING
from wrt._backends.torch.rules.table import BY_KIND

MOST_NODES = 20_000
UNSETTLED: Any = object()
AN_END: Any = object()
NOBODY: Spot = (None, 0)

Kind = tuple[Any, ...]
"""What a rule is proven for: the rule, which inputs are wanted of it, and settings."""

Input = tuple[int, Spot, Spot]
"""An input of a node that may lead to x: its number, the tensor it was, and the one that this is a view of."""


class Layout:
    """The steps from y to every x, those next to x first.

    A node that passes a gradient on as it is, perhaps in another shape, is looked through and is no step, once its kind
    has been proven. As many nodes are met here as operations were run: nothing is called that can be written down, and
    little is kept, since Python's garbage collector walks through every list and tuple that is new.
    """

    def __init__(self, ends: Sequence[Spot], known: dict[Kind, bool]) -> None:
        self.ends: dict[Spot, Slot] = dict.fromkeys(ends, -1)
        self.steps: list[Step] = []
        self.spots: list[Spot] = []
        self.loose: list[bool] = []
        self.operations = 0
        self.known = known
        self.unproven: dict[Kind, tuple[int, int]] = {}
        """Where the steps of one node of each kind are whose rule is not known to hold for it."""
        self._end_nodes = {node for node, _ in ends}
        self._state: dict[Node | None, Any] = {None: None}
        """Of each node that was met: its slot once it is settled, a list where it has several; None where no x lies behind."""
        if len(ends) == 1:  # what x was made from leads nowhere
            self._state[ends[0][0]] = AN_END

    def walk(self, start: Spot) -> Slot | None:
        """The slot of y; None where no x is met. Raises NoRule where a rule is missing."""
        while type(start[0]) in PASSING and start[0] not in self._end_nodes:
            start = start[0].next_functions[0]
        self._settle(self._met(start[0]))
        slot = None if self._state[start[0]] is None else self._slot_of(start)
        if slot is not None:
            self.spots[slot] = start
            self.loose[slot] = True
        return slot

    def _met(self, start: Node) -> dict[Node, list[Input]]:
        """Every node that led to y, with those of its inputs that may lead to x, where there are any."""
        state, end_nodes = self._state, self._end_nodes
        inputs: dict[Node, list[Input]] = {}
        nodes = [start]
        passed = 0
        for node in nodes:  # grows while it is walked
            found: list[Input] = []
            for k, direct in enumerate(node.next_functions):
                spot = direct
                source = spot[0]
                kind = type(source)
                while kind in PASSING and source not in end_nodes:
                    spot = source.next_functions[0]
                    source = spot[0]
                    kind = type(source)
                    passed += 1
                if source in state:
                    if state[source] is None:
                        continue
                elif kind is ACCUMULATE:
                    if source not in end_nodes:
                        state[source] = None
                        continue
                    state[source] = AN_END
                else:
                    state[source] = UNSETTLED
                    nodes.append(source)
                found.append((k, direct, spot))
            if found:
                inputs[node] = found
            else:
                state[node] = AN_END if node in end_nodes else None
            if len(nodes) > MOST_NODES:
                raise NoRule("more operations than anybody walks through")
        self.operations = len(nodes) + passed
        return inputs

    def _settle(self, inputs: dict[Node, list[Input]]) -> None:
        """Note the steps of each node that leads to x."""
        state, steps, spots, loose, known = self._state, self.steps, self.spots, self.loose, self.known
        held: dict[Any, int] = {}  # rules that were looked up for these inputs just before
        for node in sorted(inputs, key=made):  # each after what it was made from
            wanted = 0
            rule: Any
            slot: Any
            for k, direct, spot in inputs[node]:
                into = state[spot[0]]
                if into is None:
                    continue
                if type(into) is not int or spot[1]:
                    into = self._slot_of(spot)
                    if into is None:
                        continue
                if not wanted:
                    rule = BY_KIND[type(node)]
                    if rule is None:
                        raise NoRule("an operation on the way has no rule")
                    as_it_comes, first = rule.loose, len(steps)
                    if type(rule) is Pieces:
                        slot = []
                    else:
                        slot = len(spots)
                        spots.append(NOBODY)
                        loose.append(False)
                spots[into] = spot
                if as_it_comes or direct is not spot:
                    loose[into] = True
                steps.append((rule, node, slot, k, into, direct, not wanted))
                wanted |= 1 << k
            if not wanted:
                state[node] = AN_END if node in self._end_nodes else None
                continue
            state[node] = slot
            if rule.settings or held.get(rule) != wanted:
                held[rule] = wanted
                kind = (rule, wanted, *[getattr(node, name) for name in rule.settings])
                if not known.get(kind):
                    self.unproven[kind] = first, len(steps)

    def _slot(self) -> Slot:
        self.spots.append(NOBODY)
        self.loose.append(False)
        return len(self.spots) - 1

    def _slot_of(self, spot: Spot) -> Slot | None:
        """The slot of a tensor that leads to x; None for another output of what made x."""
        there = self._state[spot[0]]
        if there is AN_END:
            if spot not in self.ends:
                return None
            if self.ends[spot] < 0:
                self.ends[spot] = self._slot()
            return self.ends[spot]
        if type(there) is list:
            for output, slot in there:
                if output == spot[1]:
                    return slot
            there.append((spot[1], self._slot()))
            return there[-1][1]
        if there is UNSETTLED or spot[1]:
            raise NoRule("operations were made out of turn" if there is UNSETTLED else "another output than the first")
        return there

    def arrival(self, end: Spot) -> Slot | None:
        """The slot where the gradient of an x arrives; None where nothing leads there."""
        there = self._state.get(end[0])
        if type(there) is list:
            return dict(there).get(end[1])
        if type(there) is int:
            return None if end[1] else there
        slot = self.ends[end]
        return None if slot < 0 else slot
