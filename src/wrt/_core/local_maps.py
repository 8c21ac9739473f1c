"""Which element of an operation's result can depend on which element of its input, operation by operation."""

from __future__ import annotations

from dataclasses import dataclass

from wrt._core.index import Positions


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
