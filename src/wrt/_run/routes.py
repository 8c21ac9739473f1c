"""How a question is answered at whatever point: by sweeping lines, or through a waist as a product of smaller answers.

A route only says what there is to do; the backend does it, on numbers or inside of a transformation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from wrt._core.index import Positions
from wrt._core.lines import Lines, Weights
from wrt._core.pattern import Way
from wrt._core.protocol import Array
from wrt._run.tally import IN_THE_BATCH

BESIDE = "by one more pass, unbatched"


class Route(Protocol):
    """`answer` gives all of it, or the entries that can be nonzero; `proven` also how far a probe of it is off.

    `bound` is what the probe may be off by, next to what it sums up. `plain` routes are the engine's own lines, one pass for
    each, with nothing left to try when they do not hold.
    """

    @property
    def because(self) -> str: ...
    @property
    def bound(self) -> float: ...
    @property
    def passes(self) -> int: ...
    @property
    def plain(self) -> bool: ...
    @property
    def entries(self) -> tuple[Positions, Positions] | None: ...
    @property
    def probe(self) -> str: ...
    def answer(self, dense: bool, leaves: Sequence[Array]) -> Array: ...
    def proven(self, dense: bool, leaves: Sequence[Array]) -> tuple[Array, Array]: ...


@dataclass(frozen=True, slots=True, eq=False)
class ByLines:
    """Rows by pull or columns by push, each alone or several that share no entry together."""

    elsewhere: Any
    lines: Lines
    because: str
    bound: float

    @property
    def passes(self) -> int:
        return len(self.lines.wanted)

    @property
    def plain(self) -> bool:
        return self.lines.entries is None

    @property
    def entries(self) -> tuple[Positions, Positions] | None:
        return self.lines.entries

    @property
    def probe(self) -> str:
        return IN_THE_BATCH if self.elsewhere.batches_hold else BESIDE

    def answer(self, dense: bool, leaves: Sequence[Array]) -> Array:
        return self.elsewhere.answer(self.lines, dense, leaves)

    def proven(self, dense: bool, leaves: Sequence[Array]) -> tuple[Array, Array]:
        found: tuple[Array, Array] = self.elsewhere.proven(self.lines, dense, leaves)
        return found

    def __str__(self) -> str:
        return f"{self.passes} passes ({self.lines.way})"


@dataclass(frozen=True, slots=True, eq=False)
class Through:
    """J = J2 @ J1 through each array of a waist, none of which is made from another; their products are summed.

    `weights` is a probe of the whole, swept `way`.
    """

    elsewhere: Any
    sides: tuple[tuple[Route, Route], ...]
    way: Way
    weights: Weights
    because: str
    bound: float
    entries: None = None
    plain: bool = False
    probe: str = BESIDE

    @property
    def passes(self) -> int:
        return sum(last.passes + first.passes for last, first in self.sides)

    def answer(self, dense: bool, leaves: Sequence[Array]) -> Array:
        return self.elsewhere.product(self._factors(leaves))

    def proven(self, dense: bool, leaves: Sequence[Array]) -> tuple[Array, Array]:
        factors = self._factors(leaves)
        return self.elsewhere.product(factors), self.elsewhere.held(factors, self.way, self.weights, leaves)

    def _factors(self, leaves: Sequence[Array]) -> list[tuple[Array, Array]]:
        return [(last.answer(True, leaves), first.answer(True, leaves)) for last, first in self.sides]

    def __str__(self) -> str:
        return f"{self.passes} passes (cut)"
