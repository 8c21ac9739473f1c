"""How a question will be answered: data with a reason. Executing it is a loop elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from wrt._core.index import Positions
from wrt._core.pattern import Compression, Way

__all__ = ["Chain", "Compressed", "Cut", "Direct", "Patches", "Plan", "Stretch", "Sum", "Way"]


@dataclass(frozen=True, slots=True)
class Direct:
    """Sweep along one side of the Jacobian: rows by pull, columns by push.

    `whole` tells whether ways to the whole matrix were looked for too: nonzeros and diagonals are asked for without them.
    """

    way: Way
    passes: int
    because: str
    strategy: str = "direct"
    proven: bool = False
    from_weights: bool = False
    whole: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Compressed:
    """Sweep rows (or columns) that share no entry together, then tell their entries apart.

    `columns` are pushed one by one: they meet so many rows that no two rows could share a pass for them. `kept` holds
    what a later, identical question can use again: seeds and indices on the device.
    """

    compression: Compression
    because: str
    strategy: Literal["structured", "colored"] = "structured"
    kept: dict[str, Any] = field(default_factory=dict)
    columns: Positions | None = None

    @property
    def way(self) -> Way:
        return self.compression.way

    @property
    def passes(self) -> int:
        return self.compression.passes + (0 if self.columns is None else len(self.columns))


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """J = J2 @ J1 through a set of tensors that everything from x to y passes; each side is a question of its own.

    `tensors` are their numbers in the flow of the run, `sizes` the sizes by which the same flow is known again, and
    `trails` the ways from y to them. `seconds` is what it was expected to take.
    """

    tensors: tuple[int, ...]
    sizes: tuple[int, ...]
    width: int
    passes: int
    because: str
    seconds: float
    strategy: Literal["cut"] = "cut"
    way: Way = "pull"
    trails: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Patches:
    """Sweep only what of every layer lies between the rows and the columns that were asked for."""

    passes: int
    share: float
    because: str
    strategy: Literal["cone"] = "cone"
    way: Way = "pull"


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """One stretch of a chain: by its structure, as the sum of branches (chains of their own), or by all rows.

    A branch is the tensors it passes and its own stretches; None where it leads to the end by itself.
    """

    passes: int
    seconds: float
    structured: Compressed | None = None
    branches: tuple[tuple[tuple[int, ...], tuple[Stretch, ...]] | None, ...] = ()

    def __str__(self) -> str:
        if self.structured is None and not self.branches:
            return f"{self.passes} rows"
        return f"{self.passes} passes" + (f" in {len(self.branches)} branches" if self.branches else "")


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Everything from x to y passes `tensors` in turn; `stretches` are what lies between them, from y to x."""

    tensors: tuple[int, ...]
    sizes: tuple[int, ...]
    stretches: tuple[Stretch, ...]
    passes: int
    because: str
    strategy: Literal["chain"] = "chain"
    way: Way = "pull"


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """y is a sum, and each of its terms a question of its own; `trails` lead from y to them, None where one is x itself."""

    trails: tuple[tuple[int, ...] | None, ...]
    passes: int
    because: str
    seconds: float
    strategy: Literal["sum"] = "sum"
    way: Way = "pull"


Plan: TypeAlias = Direct | Compressed | Cut | Patches | Chain | Sum
