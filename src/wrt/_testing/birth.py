"""Where a dependence was born: the first value of the run that has it, and the lines that carry it on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import wrt
from wrt._testing.run import Run
from wrt.errors import WrtError
from wrt.extend import handle_of, is_float, tensors_of

SHOWN = 6  # lines of a path
FEW = 24  # values that are asked one by one


@dataclass(frozen=True, slots=True)
class Birth:
    """`name` is the first value with the dependence; `lines` lead there from the last value without it, and on to y."""

    name: str
    module: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        module = f" in {self.module}" if self.module and self.module != self.name else ""
        shown = self.lines if len(self.lines) <= SHOWN else (*self.lines[: SHOWN - 1], "...", self.lines[-1])
        head = f"first seen in {self.name}{module}" if self.name else "along these lines"
        return head + "".join(f"\n    {line}" for line in shown)


def birth(run: Run, alike: Callable[[wrt.Handle], bool], leaks: Callable[[wrt.Handle], bool]) -> Birth:
    """The first value, among those with the same axes as x, that has the dependence."""
    values = [(at, handle) for at, handle in _values(run.trace) if is_float(handle) and alike(handle)]
    first = _first([handle for _, handle in values], leaks)
    if first is None:
        return Birth("", "", _lines(run, 0))
    since = values[first - 1][0] + 1 if first else 0
    made, handle = values[first]
    return Birth(handle.name, run.trace.graph.nodes[made].module, _lines(run, since))


def _first(values: list[wrt.Handle], leaks: Callable[[wrt.Handle], bool]) -> int | None:
    """The first that leaks; found by halving where there are many, since a leak that is born stays."""

    def asked(handle: wrt.Handle) -> bool:
        try:
            return leaks(handle)
        except WrtError:  # whole numbers, values of another run
            return False

    if len(values) <= FEW:
        return next((k for k, handle in enumerate(values) if asked(handle)), None)
    low, high = 0, len(values)  # below `low` all are clean, `high` leaks
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if asked(values[middle]) else (middle + 1, high)
    return low if low < len(values) else None


def _values(trace: wrt.Trace) -> Iterator[tuple[int, wrt.Handle]]:
    """Every named value that the run made, in order, with the operation that made it."""
    for number, tensor in sorted(trace.graph.tensors.items()):
        handle = handle_of(trace, number) if tensor.node is not None else None
        if handle is not None and tensor.node is not None:
            yield tensor.node, handle


def _lines(run: Run, since: int) -> tuple[str, ...]:
    """The distinct source lines of operations that read something computed from x, from one moment on."""
    graph = run.trace.graph
    reached = tensors_of(run.trace, run.given)
    told: dict[str, None] = {}
    for node in graph:
        if reached.intersection(node.inputs):
            reached.update(node.outputs)
            if node.id >= since and node.where is not None:
                told[f"{node.where}  {node.where.text}".rstrip()] = None
    return tuple(told)
