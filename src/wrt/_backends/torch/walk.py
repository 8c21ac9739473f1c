"""The tensors between y and x, each after everything that is computed from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Spot = tuple[Any, int]  # a node and the number of its output: one tensor
Made = TypeVar("Made")


class Walk(Generic[Made]):
    """`make` is called for each tensor on a way to x, with those it is made from; None from it ends the walk."""

    def __init__(self, make: Callable[[Spot, list[tuple[int, Made]]], Made | None], most: int) -> None:
        self.make = make
        self.most = most

    def run(self, start: Spot, end: Spot, last: Made) -> list[Made] | None:
        """From y to x; None where nothing leads there, where something refused or where there is too much."""
        made: dict[Spot, Made | None] = {end: last}
        order: list[Made] = []
        stack: list[tuple[Spot, bool]] = [(start, False)]
        while stack:
            spot, ready = stack.pop()
            if spot in made:
                continue
            sources = spot[0].next_functions
            if not ready:
                if len(made) > self.most:
                    return None
                stack.append((spot, True))
                stack.extend((s, False) for s in sources if s[0] is not None and s not in made)
                continue
            found = [(k, source) for k, s in enumerate(sources) if (source := made.get(s)) is not None]
            one = self.make(spot, found) if found else None
            if found and one is None:
                return None
            made[spot] = one
            if one is not None:
                order.append(one)
        return None if made[start] is None else [*reversed(order), last]
