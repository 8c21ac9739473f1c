"""The tensors between x and y as plain data: how large they are, what is made from what, what a pass costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from wrt._core.index import Positions
from wrt._core.plan import Address
from wrt._core.value import Value


@dataclass(slots=True)
class Flow:
    """Tensor 0 is y, `xs` are the ends. Tensors are numbered in an order that the same program repeats every time.

    `made_from[i]` lists the tensors that i was computed from, as far as they lead to x. `products[i]` counts the
    multiplications of one pass from i to those, and `elements[i]` the numbers that simpler operations touch.
    """

    sizes: list[int]
    made_from: list[list[int]]
    products: list[float]
    elements: list[float]
    xs: tuple[int, ...]
    mixed: bool
    """Every way from x to y leads through an operation that mixes all of its input: the Jacobian is full."""
    push_cost: float
    """What a push costs next to a pull of the same map, by the operations on the way."""
    value: Callable[[int], Value | None] = field(repr=False)
    """The Value of a tensor; None where it cannot be asked about (another dtype)."""
    mixing: frozenset[int] = frozenset()
    """Tensors that are a matrix times one vector: each number of theirs depends on every number of what they are made from."""
    accelerated: bool = False
    """On a device that wants large batches."""
    is_sum: Callable[[int], bool] = field(default=lambda tensor: False, repr=False)
    """Whether a tensor is the plain sum of those it is made from."""

    address: Callable[[int], Address] = field(default=lambda tensor: tensor, repr=False)
    """Where a tensor stands, for `Record.at_address` in another run of the same program."""

    @property
    def largest(self) -> int:
        return max(self.sizes)

    def between(self, later: frozenset[int], earlier: frozenset[int]) -> list[int]:
        """The tensors that a pass from `later` visits before it stops at `earlier`."""
        seen: list[int] = []
        known = set(later)
        waiting = list(later)
        while waiting:
            tensor = waiting.pop()
            if tensor in earlier:
                continue
            seen.append(tensor)
            for source in self.made_from[tensor]:
                if source not in known:
                    known.add(source)
                    waiting.append(source)
        return seen


def leads_unmixed(made_from: list[list[int]], mixing: frozenset[int], ends: set[int]) -> bool:
    """Whether some way from y to an end meets no operation that mixes everything."""
    seen = {0}
    waiting = [0]
    while waiting:
        tensor = waiting.pop()
        if tensor in ends:
            return True
        if tensor in mixing:
            continue
        for source in made_from[tensor]:
            if source not in seen:
                seen.add(source)
                waiting.append(source)
    return False


@dataclass(frozen=True, slots=True, eq=False)
class LocalMap:
    """Tensor `later` is made from tensor `earlier`: element by element, or at the listed pairs (rows, columns)."""

    later: int
    earlier: int
    pairs: tuple[Positions, Positions] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LocalMaps:
    """Tensor 0 is y, the last one is x; `maps` stand in an order in which a tensor comes before what it is made from."""

    sizes: tuple[int, ...]
    maps: tuple[LocalMap, ...]
