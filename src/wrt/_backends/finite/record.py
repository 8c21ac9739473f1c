"""A function and the point at which it was called: all that differences need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._backends.finite.sweep import FiniteLinear
from wrt._core.bindings import Binding, Bindings
from wrt._core.evidence import Evidence
from wrt._core.graph import Graph, Write
from wrt._core.index import Elements
from wrt._core.protocol import Backend, Record
from wrt._core.value import Part, Side, Value
from wrt._core.where import Where
from wrt.errors import NotDifferentiable, NotRecorded, WrongIndex

Point = tuple[npt.NDArray[Any], ...]


@dataclass(frozen=True)
class Input:
    """The how-many-th array that went in, as a function of all of them."""

    number: int

    def __call__(self, point: Point) -> npt.NDArray[Any]:
        return point[self.number]


class FiniteRecord:
    """Positional arrays in, one array out."""

    output: Any
    inputs: list[Any]
    keywords: dict[str, Any]

    def __init__(self, backend: Backend, f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.backend = backend
        self.names = Bindings()
        self.keywords = dict(kwargs)
        given = [np.asarray(each) for each in args]
        self.point: Point = tuple(_wide(each) for each in given)
        self.inputs = [Value(self, Input(k), each.shape, each.dtype) for k, each in enumerate(given)]
        made = np.asarray(f(*given, **kwargs))
        self.output = Value(self, lambda point: f(*point, **kwargs), made.shape, made.dtype)

    @property
    def graph(self) -> Graph | None:
        return None

    def join(self, other: Record) -> Record | None:
        return None

    def side(self, value: Value, elements: Elements) -> Side:
        return Side(elements.shape, (Part(value, elements),))

    def same(self, y: Value, x: Value) -> bool:
        return y.key is x.key

    def has_history(self, value: Value) -> bool:
        return bool(np.issubdtype(value.dtype, np.inexact))

    def ready(self, y: Value, x: Side) -> None:
        if not all(map(self.has_history, (y, *x.values))):
            raise NotDifferentiable(
                "d() of an array of whole numbers",
                "whole numbers and booleans have no derivative",
                "give the function floating-point arrays",
            )
        if not all(isinstance(value.key, Input) for value in x.values):
            raise NotRecorded(
                "finite differences with respect to something that did not go in",
                CAPABILITIES["intermediate"],
                "make it an argument of the function",
            )

    def linear(self, y: Value, xs: Sequence[Value]) -> FiniteLinear:
        return FiniteLinear(self, y, xs)

    def value(self, value: Value) -> Any:
        return np.asarray(value.key(self.point)).astype(value.dtype)

    def unreached(self, y: Value, x: Value) -> bool | Exception:
        return NotRecorded("nothing is known about this path", CAPABILITIES["unconnected"], "ask another framework")

    def notes(self, y: Value, x: Side) -> list[str]:
        return ["central differences: about ten digits in double precision"]

    def bound(self, binding: Binding) -> Value:
        raise AssertionError("no names are recorded")

    def find(self, obj: Any) -> Value | None:
        return None

    def evidence(self) -> Evidence:
        raise NotRecorded("why() of a finite difference", "no operation was recorded", "ask torch, TensorFlow or JAX")

    def numbered(self, value: Value) -> int | None:
        return None

    def where(self, value: Value) -> Where | None:
        return None

    def line_of(self, made: Any) -> Where | None:
        return None

    def writes(self, value: Value) -> list[Write]:
        return []

    def at(self, value: Value, k: int) -> tuple[Value, Elements]:
        if k:
            raise WrongIndex(f"there is no write {k} of this array", CAPABILITIES["same tensor"], "write .at(0)")
        return value, Elements.all(value.shape)


def _wide(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Differences need every digit they can get, whatever the precision of the question."""
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64) if array.dtype.kind in "fc" else array


CAPABILITIES = {
    "intermediate": "differences run the function again, and can move only what goes in",
    "same tensor": "differences run the function again, and can move only what goes in",
    "unconnected": "differences cannot tell a zero slope from no dependence",
    "record": "differences need a function that can be run again; write t = trace(f, x)",
}
