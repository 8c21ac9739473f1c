"""What passes cost, in seconds on one CPU thread. The rates were set by hand from timings of dense and stencil maps."""

from __future__ import annotations

from wrt._core.flow import Flow

PER_OPERATION = 12e-6  # one operation of a batched sweep, however small the batch
PER_PRODUCT = 1 / 3e10  # a multiplication inside a matrix product
PER_ELEMENT = 1 / 1e9  # a number touched by a simpler operation
PUSH = 1.3  # numbers a push touches next to a pull of the same map
PUSH_OPERATIONS = 3  # a pull that can be differentiated, then twice as many operations


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
