"""What the tables of JAX and TensorFlow have in common: a row, and the numbers of a dense network."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np


@dataclass
class Row:
    """Milliseconds of every contender, and how far wrt is from a Jacobian in float64."""

    name: str
    cold: dict[str, float] = field(default_factory=dict)
    warm: dict[str, float] = field(default_factory=dict)
    disagreement: float = float("nan")
    notes: list[str] = field(default_factory=list)


def dense_weights(*widths: int) -> list[Any]:
    """The same numbers in every framework."""
    generator = np.random.default_rng(0)
    return [generator.normal(size=shape) / shape[0] ** 0.5 for shape in pairwise(widths)]
