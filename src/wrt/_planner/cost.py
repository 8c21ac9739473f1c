"""What passes cost, in seconds on one CPU thread or on a GPU, by rates that were fitted to timed passes (see `rates`)."""

from __future__ import annotations

from wrt._core.ask import Ask
from wrt._core.flow import Flow
from wrt._planner.rates import Rates, shipped

CPU, GPU = shipped("cpu"), shipped("cuda")


def rates_of(ask: Ask) -> Rates:
    """The rates of the device that a question is answered on."""
    return GPU if ask.accelerated else CPU


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


def product(flow: Flow, m: int, inner: int, n: int) -> float:
    """One matrix product."""
    return m * inner * n * rates_on(flow).product
