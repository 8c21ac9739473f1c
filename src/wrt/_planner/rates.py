"""The few numbers of the cost model, from a file: `python -m benchmarks fit --write` makes it, for each kind of device."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).with_name("rates.json")


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds on one CPU thread or on a GPU, and what a push costs next to a pull."""

    operation: float
    """One operation of a batched sweep, however small the batch."""
    product: float
    """A multiplication inside a matrix product."""
    element: float
    """A number touched by a simpler operation."""
    push: float
    """Numbers a push touches, next to a pull of the same map."""
    push_operations: float
    """Operations of a push next to those of a pull, the pull that sets it up included."""

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def shipped(device: str) -> Rates:
    """The rates of "cpu" or "cuda"."""
    return Rates(**json.loads(FILE.read_text())[device])


def ship(device: str, rates: Rates) -> None:
    """Make these the rates that wrt ships with."""
    FILE.write_text(json.dumps(json.loads(FILE.read_text()) | {device: rates.to_dict()}, indent=1) + "\n")
