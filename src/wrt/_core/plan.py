"""How a question will be answered: plain data with a reason. `_run` executes it, and the proof decides whether it held."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from wrt._core.index import Positions
from wrt._core.pattern import Compression, Way

__all__ = ["LAST_WEIGHTS", "Address", "Lines", "Patch", "Plan", "Product", "Sum", "Way", "Weights"]

Address: TypeAlias = Hashable
"""Where a tensor stands between y and x, so that it is found again in another run of the same program."""
LAST_WEIGHTS: Address = "what the last weights are multiplied with"
"""The address of h where y = W h."""


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Sweep rows by pull or columns by push.

    Each line takes a pass of its own; with `shared`, lines that have no entry in common travel together, and it tells who
    owns each number that comes back. `alone` are columns that are pushed one by one beside shared rows. `batched` lines go
    many to a call of the engine; otherwise one plain pass follows another. As a factor of a product, `carried` rows are
    those that arrive from the factor before, pulled on: the factor itself is never formed.
    """

    way: Way
    passes: int
    because: str
    strategy: Literal["direct", "structured", "colored"] = "direct"
    batched: bool = True
    shared: Compression | None = None
    alone: Positions | None = None
    carried: bool = False
    seconds: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """y is a matrix times another tensor: its rows start as the rows of that matrix, without a pass."""

    because: str = "y is a matrix times a tensor"
    passes: int = 0
    seconds: float | None = 0.0
    strategy: Literal["weights"] = "weights"
    way: Way = "pull"


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """J = J_k @ ... @ J_1: everything from x to y passes each set of tensors in `cuts`, which stand from y to x.

    `factors` are the plans between them, one more than there are cuts.
    """

    cuts: tuple[tuple[Address, ...], ...]
    factors: tuple[Plan, ...]
    passes: int
    because: str
    strategy: Literal["cut", "chain", "direct"] = "cut"
    seconds: float | None = None
    way: Way = "pull"


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """y is a sum, and each of its terms a question of its own; a term without address or plan is x itself."""

    terms: tuple[tuple[Address, Plan] | None, ...]
    passes: int
    because: str
    strategy: Literal["sum"] = "sum"
    seconds: float | None = None
    way: Way = "pull"


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """Rows and columns of a local map: only what of every layer lies between them is swept."""

    passes: int
    because: str
    strategy: Literal["patch"] = "patch"
    seconds: float | None = None
    way: Way = "pull"


Plan: TypeAlias = Lines | Product | Sum | Patch | Weights
