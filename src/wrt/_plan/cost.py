"""What passes cost, in seconds on one CPU thread or on a GPU, by rates that were fitted to timed passes.

`python -m benchmarks fit --write` makes the file of rates, for each kind of device.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from wrt._core.flow import Flow

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


def read_rates(device: str) -> Rates:
    """The rates of "cpu" or "cuda"."""
    return Rates(**json.loads(FILE.read_text())[device])


def write_rates(device: str, rates: Rates) -> None:
    """Make these the rates that wrt ships with."""
    FILE.write_text(json.dumps(json.loads(FILE.read_text()) | {device: rates.to_dict()}, indent=1) + "\n")


CPU, GPU = read_rates("cpu"), read_rates("cuda")


def rates_on(flow: Flow) -> Rates:
    return GPU if flow.accelerated else CPU


def seconds(flow: Flow, tensors: list[int], passes: int) -> float:
    """`passes` pulls through these operations, in one batch."""
    return len(tensors) * rates_on(flow).operation + passes * each(flow, tensors)


def push_seconds(flow: Flow, tensors: list[int], passes: int) -> float:
    """`passes` pushes through them, set up by a pull."""
    rates = rates_on(flow)
    return len(tensors) * rates.operation * rates.push_operations + passes * each(flow, tensors) * rates.push


def each(flow: Flow, tensors: list[int]) -> float:
    """One more pull in a batch."""
    rates = rates_on(flow)
    products = sum([flow.products[tensor] for tensor in tensors])
    elements = sum([flow.elements[tensor] for tensor in tensors])
    return products * rates.product + elements * rates.element


def cheapest(flow: Flow, tensors: list[int], rows: int, columns: int) -> float:
    """By rows or by columns, whichever costs less."""
    return min(seconds(flow, tensors, rows), push_seconds(flow, tensors, columns))


def direct_seconds(flow: Flow, rows: int, columns: int) -> float:
    """A direct sweep from y to x."""
    return cheapest(flow, all_tensors(flow), rows, columns)


def all_tensors(flow: Flow) -> list[int]:
    """Everything that a pass from y to x visits."""
    return flow.between(frozenset({0}), frozenset(flow.xs))


def product(flow: Flow, m: int, inner: int, n: int) -> float:
    """One matrix product."""
    return m * inner * n * rates_on(flow).product
