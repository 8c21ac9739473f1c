"""What rows cost one by one, through one traced pull, and as a traced batch: told from the first of them.

Run eagerly, an operation of a row takes 15 µs of Python beside its kernel. A traced pull runs without that, and a batch shares
even its kernels; but tracing takes longer than many rows, for a batch (`pfor`) some five times as long. The numbers were fitted
to dense, convolutional and recurrent networks, layer norms, a stencil and gathers, with 4 to 110 operations in a row.
"""

from __future__ import annotations

from typing import NamedTuple

EAGER = 15e-6  # seconds of an operation, beside its kernel


class Row(NamedTuple):
    """One eager row: how many operations it ran, and the seconds they took."""

    operations: int
    seconds: float

    @property
    def kernels(self) -> float:
        return max(0.0, self.seconds - EAGER * self.operations)


class Price(NamedTuple):
    """Seconds to begin with, and for each row, by the operations of a row; and the share of the kernels' time that is left."""

    start: float
    start_operation: float
    each: float
    each_operation: float
    kernels: float

    def seconds(self, count: int, row: Row) -> float:
        each = self.each + self.each_operation * row.operations + self.kernels * row.kernels
        return self.start + self.start_operation * row.operations + count * each


ONE_BY_ONE = Price(0.0, 0.0, 0.0, EAGER, 1.0)
TRACED = Price(8e-3, 0.8e-3, 0.18e-3, 1e-6, 0.3)
BATCHED = Price(20e-3, 3.5e-3, 5e-6, 0.1e-6, 0.08)


def pays(price: Price, count: int, row: Row, *others: Price) -> bool:
    """Whether so many rows are cheapest at this price."""
    return all(price.seconds(count, row) < other.seconds(count, row) for other in others)
