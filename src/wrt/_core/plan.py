"""How a question will be answered: data with a reason. Executing it is a loop elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Way = Literal["pull", "push"]


@dataclass(frozen=True, slots=True)
class Direct:
    """Sweep along one side of the Jacobian: rows by pull, columns by push."""

    way: Way
    passes: int
    because: str
    strategy: str = "direct"
