"""An array outside any recording: it has no history, but a recording may know it as an input or a constant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wrt._core.graph import Graph
from wrt._core.index import Elements
from wrt._core.protocol import Backend, Linear, Record
from wrt._core.value import Part, Side, Value
from wrt.errors import NotRecorded


class BareRecord:
    """Stands for "nothing was recorded": `d(t.output) / d(x)` finds x in t, anything else is refused in words."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    @property
    def graph(self) -> Graph | None:
        return None

    def lift(self, array: Any) -> Value:
        return Value(self, array, tuple(array.shape), array.dtype)

    def join(self, other: Record) -> Record | None:
        return None if other is self else other.join(self)

    def side(self, value: Value, elements: Elements) -> Side:
        return Side(elements.shape, (Part(value, elements),))

    def same(self, y: Value, x: Value) -> bool:
        return y.key is x.key

    def has_history(self, value: Value) -> bool:
        return False

    def ready(self, y: Value, x: Side) -> None:
        raise not_recorded()

    def linear(self, y: Value, xs: Sequence[Value]) -> Linear:
        raise not_recorded()

    def value(self, value: Value) -> Any:
        return value.key

    def unreached(self, y: Value, x: Value) -> bool | Exception:
        return not_recorded()

    def notes(self, y: Value, x: Side) -> list[str]:
        return []


def not_recorded() -> NotRecorded:
    return NotRecorded(
        "d() of a bare JAX array",
        "a JAX array carries no history: JAX differentiates functions, and nothing was recorded",
        "t = wrt.trace(f, x), then d(t.output) / d(t.inputs[0])",
    )
