"""The tensors between y and x, each after everything that is computed from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wrt._backends.torch.compat import ACCUMULATE
from wrt._backends.torch.nodes import Spot

Sources = tuple[tuple[int, int], ...]
"""Inputs that lead to x: which one it is, and the number of its tensor, counted from y."""


def walk(
    start: Spot, end: Spot, *, most: int, known: Callable[[Any], bool]
) -> tuple[list[Spot], list[Sources]] | None:
    """From y to x, the tensors on the way and what each is made from; x, the last one, is not asked what it is made of.

    None where nothing leads there, where a node on the way is not known, or where there is too much to walk.
    """
    leads: dict[Spot, list[tuple[int, Spot]]] = {end: []}  # an empty list for all others that do not lead to x
    order: list[Spot] = []
    stack: list[tuple[Spot, Sequence[Spot] | None]] = [(start, None)]
    while stack:
        spot, sources = stack.pop()
        if spot in leads:
            continue
        if sources is None:
            if len(leads) > most:
                return None
            sources = spot[0].next_functions
            stack.append((spot, sources))
            for source in sources:
                if source not in leads and source[0] is not None and type(source[0]) is not ACCUMULATE:
                    stack.append((source, None))  # a leaf that is not x leads nowhere
            continue
        found = [(k, source) for k, source in enumerate(sources) if source == end or leads.get(source)]
        if found and not known(spot[0]):
            return None
        leads[spot] = found
        if found:
            order.append(spot)
    if not leads[start]:
        return None
    order = [*reversed(order), end]
    number = {spot: k for k, spot in enumerate(order)}
    return order, [tuple((k, number[source]) for k, source in leads[spot]) for spot in order]
