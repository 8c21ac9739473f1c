"""The key of a TensorFlow Value: a tensor never changes, a variable is known by its handle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """`number` is the tensor's own in this process; `variable` is set where the Value is a variable."""

    number: int
    tensor: Any
    variable: Any = None
