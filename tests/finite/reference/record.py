"""A function and the point at which it was called: all that differences need."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.finite.reference.engine import FiniteEngine
from wrt._core.bindings import Binding, Bindings
from wrt._core.evidence import Evidence
from wrt._core.flow import Flow, LocalMaps
from wrt._core.graph import Graph, Write
from wrt._core.index import Elements
from wrt._core.plan import Address
from wrt._core.protocol import Backend, Capability, Patches, Record, RecordedFunction
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

    recorded = True
    again: Any = None
    changes = ""
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

    def refuse_filled(self, value: Value) -> None:
        """An array that went in or came out is known as a whole."""

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

    def engine(self, y: Value, xs: Sequence[Value]) -> FiniteEngine:
        return FiniteEngine(self, y, xs)

    def value(self, value: Value) -> Any:
        return np.asarray(value.key(self.point)).astype(value.dtype)

    def unreached(self, y: Value, x: Value) -> bool | Exception:
        return NotRecorded("nothing is known about this path", CAPABILITIES["unconnected"], "ask another framework")

    def notes(self, y: Value, x: Side) -> list[str]:
        return ["central differences: about ten digits in double precision"]

    def outside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def signature(self, y: Value, xs: Sequence[Value]) -> Hashable:
        return y.key, *(x.key for x in xs)  # nothing is known of what is inside: no other function is like this one

    def flow(self, y: Value, xs: Sequence[Value]) -> Flow | None:
        return None

    def at_address(self, y: Value, xs: Sequence[Value], address: Address) -> Value | None:
        return None

    def last_weights(self, y: Value, xs: Sequence[Value]) -> tuple[Value, Any] | None:
        return None

    def local_maps(self, y: Value, x: Value, *, certain: bool = False) -> LocalMaps | None:
        return None

    def widest(self, y: Value) -> int:
        return y.size

    def patches(self, y: Value, rows: Elements, x: Value, columns: Elements) -> Patches | None:
        return None

    def recorded_function(self, y: Value, x: Value) -> RecordedFunction | None:
        return None

    @property
    def answers(self) -> dict[Hashable, Any] | None:
        return None  # the function may answer otherwise next time

    def own(self, value: Value) -> Value:
        return value

    def map_tree(self, tree: Any, wrap: Callable[[Value], Any]) -> Any:
        if isinstance(tree, (list, tuple)):
            return type(tree)([self.map_tree(each, wrap) for each in tree])
        if isinstance(tree, dict):
            return {key: self.map_tree(each, wrap) for key, each in tree.items()}
        return wrap(tree) if isinstance(tree, Value) else tree

    def open_loops(self, y: Value, x: Value) -> AbstractContextManager[tuple[Evidence, int, int] | None]:
        return nullcontext(None)

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


CAPABILITIES: dict[Capability, str] = {
    "intermediate": "differences run the function again, and can move only what goes in",
    "same tensor": "differences run the function again, and can move only what goes in",
    "unconnected": "differences cannot tell a zero slope from no dependence",
    "record": "differences need a function that can be run again; write t = trace(f, x)",
}
