"""What passes cost, in seconds on one CPU thread; `benchmarks/fit_cost.py` measures the rates."""

from __future__ import annotations

from wrt._core.flow import Flow
from wrt._core.pattern import Way

PER_OPERATION = 15e-6  # one operation of a batched sweep, however small the batch
PER_PRODUCT = 1 / 1.5e10  # a multiplication inside a matrix product
PER_ELEMENT = 1 / 4e8  # a number touched by a simpler operation
PUSH = 1.3  # a push next to a pull of the same map: double backward visits every operation once more


def seconds(flow: Flow, tensors: list[int], passes: int, way: Way = "pull") -> float:
    """`passes` sweeps through these operations, in one batch."""
    products = sum(flow.products[k] for k in tensors)
    elements = sum(flow.elements[k] for k in tensors)
    each = products * PER_PRODUCT + elements * PER_ELEMENT
    return len(tensors) * PER_OPERATION + passes * each * (PUSH if way == "push" else 1.0)


def cheapest(flow: Flow, tensors: list[int], rows: int, columns: int) -> tuple[float, Way]:
    """By rows or by columns, whichever costs less; a push is set up by a pull of its own."""
    pull = seconds(flow, tensors, rows)
    push = seconds(flow, tensors, columns, "push") + seconds(flow, tensors, 1)
    return (pull, "pull") if pull <= push else (push, "push")


def product(m: int, inner: int, n: int) -> float:
    """One matrix product."""
    return m * inner * n * PER_PRODUCT
