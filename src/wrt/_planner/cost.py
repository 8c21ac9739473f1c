"""What passes cost, in seconds on one CPU thread, by rates that were fitted to timed passes (see `rates`)."""

from __future__ import annotations

from wrt._core.flow import Flow
from wrt._planner.rates import shipped

RATES = shipped()
PER_OPERATION = RATES.operation
PER_PRODUCT = RATES.product
PER_ELEMENT = RATES.element
PUSH = RATES.push
PUSH_OPERATIONS = RATES.push_operations


def seconds(flow: Flow, tensors: list[int], passes: int) -> float:
    """`passes` pulls through these operations, in one batch."""
    return len(tensors) * PER_OPERATION + passes * each(flow, tensors)


def push_seconds(flow: Flow, tensors: list[int], passes: int) -> float:
    """`passes` pushes through them, set up by a pull."""
    return len(tensors) * PER_OPERATION * PUSH_OPERATIONS + passes * each(flow, tensors) * PUSH


def each(flow: Flow, tensors: list[int]) -> float:
    """One more pull in a batch."""
    products = sum(flow.products[tensor] for tensor in tensors)
    elements = sum(flow.elements[tensor] for tensor in tensors)
    return products * PER_PRODUCT + elements * PER_ELEMENT


def cheapest(flow: Flow, tensors: list[int], rows: int, columns: int) -> float:
    """By rows or by columns, whichever costs less."""
    return min(seconds(flow, tensors, rows), push_seconds(flow, tensors, columns))


def product(m: int, inner: int, n: int) -> float:
    """One matrix product."""
    return m * inner * n * PER_PRODUCT
