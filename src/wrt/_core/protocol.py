"""What a backend must offer: as little as it can be.

A batch of k seeds has a leading axis of k. Arrays are the framework's own, on the device where they live; NumPy is for
index arithmetic alone. `None` from a sweep means "structurally no path", never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from wrt._core.graph import Graph, Write
from wrt._core.index import Elements, Positions, Shape
from wrt._core.value import Side, Value
from wrt._core.where import Where

if TYPE_CHECKING:
    from wrt._core.bindings import Binding, Bindings
    from wrt._core.evidence import Evidence

Array = Any  # a tensor of the framework; the layers above never look inside


class CannotBatch(Exception):
    """This rung of the ladder cannot do it; the next one is tried, and `explain()` says so."""


class NotForThis(CannotBatch):
    """The next rung is the right one here, and there is nothing to tell about it."""


class TooFew(NotForThis):
    """So few are swept faster on the next rung; a larger batch is welcome here."""


class Linear(Protocol):
    """The derivative of y with respect to several Values, at the recorded point; set up once, swept many times."""

    push_rungs: tuple[str, ...]
    """Ways to push a batch; empty where pushing is impossible."""

    @property
    def pull_rungs(self) -> tuple[str, ...]:
        """Ways to pull a batch, best first; the last one is the engine's plain, unbatched pass."""

    def pull(self, seeds: Array, rung: str) -> list[Array | None]:
        """(k, *y.shape) -> for each x (k, *x.shape), or None where no path leads there."""

    def push(self, tangents: Sequence[Array | None], rung: str) -> Array | None:
        """For each x (k, *x.shape), None for zeros -> (k, *y.shape), or None where no path leads to y."""

    def pull_traceable(self, seeds: Array, by: Sequence[Value]) -> list[Value | None]:
        """Like pull, but each result is a Value that can be differentiated again, with respect to these."""


class Record(Protocol):
    """One run whose history is at hand: a live autograd graph, a tape, a jaxpr."""

    backend: Backend

    @property
    def graph(self) -> Graph | None:
        """The run as plain data; None where nothing was recorded (a live graph)."""

    def join(self, other: Record) -> Record | None:
        """The record in which Values of both can be asked about; None where the two runs do not meet."""

    def side(self, value: Value, elements: Elements) -> Side:
        """What these elements mean as a denominator: the value last written there, the base of a view."""

    def same(self, y: Value, x: Value) -> bool:
        """Whether two Values are one tensor at one moment."""

    def has_history(self, value: Value) -> bool:
        """Whether a sweep can start or end at this Value."""

    def ready(self, y: Value, x: Side) -> None:
        """Raise where there is no history to differentiate."""

    def linear(self, y: Value, xs: Sequence[Value]) -> Linear:
        """The linear map between Values of this record."""

    def value(self, value: Value) -> Array:
        """The numbers a Value had at its moment."""

    def unreached(self, y: Value, x: Value) -> bool | Exception:
        """Why nothing flows from x to y: True when independence is proven, otherwise the error to raise."""

    def notes(self, y: Value, x: Side) -> list[str]:
        """What `explain()` must mention: hooks met, elements written twice, random operations."""


class Recording(Record, Protocol):
    """One run that was recorded: what the user's names, modules, inputs and outputs were, and every in-place write.

    `output` and `inputs` are the user's own containers with a Value in the place of every tensor; other leaves stay.
    """

    @property
    def output(self) -> Any: ...
    @property
    def inputs(self) -> list[Any]: ...
    @property
    def keywords(self) -> dict[str, Any]: ...

    @property
    def names(self) -> Bindings:
        """Variables, module paths (their outputs; `path.input`, `path.weight`), taps: name -> successive Values."""

    def bound(self, binding: Binding) -> Value:
        """The Value that a name stands for."""

    def find(self, obj: Any) -> Value | None:
        """The Value that a live tensor of the user is in this run (its last moment); None if it is not part of it."""

    def numbered(self, value: Value) -> int | None:
        """Which tensor of the graph a Value is."""

    def where(self, value: Value) -> Where | None:
        """The user's line that made a Value."""

    def evidence(self) -> Evidence:
        """The run under examination, for `why` and `check`."""

    def line_of(self, made: Any) -> Where | None:
        """The user's line that made a tensor, or a node of the framework's own graph where it has one."""

    def writes(self, value: Value) -> list[Write]:
        """In-place writes (or functional updates) of its buffer, in order."""

    def at(self, value: Value, k: int) -> tuple[Value, Elements]:
        """The same elements after k writes: the Value its buffer was then, and which elements of it they are."""


class Arrays(Protocol):
    """The few array operations that planning, execution and certificates need, in the framework's own arrays."""

    writes_in_place: bool
    """Whether `array[a:b] = block` changes the array; otherwise blocks are joined."""

    def zeros(self, shape: Shape, like: Value) -> Array: ...
    def zeros_like(self, shape: Shape, like: Array) -> Array:
        """Zeros in the dtype and on the device of another array; needed where arrays are written in place."""

    def one_hot(self, value: Value, positions: Positions) -> Array:
        """(k, *value.shape): a one at each flat position."""

    def spread(self, value: Value, positions: Positions, weights: Array) -> Array:
        """(k, *value.shape) from weights (k, len(positions)), summed where a position comes twice; zero elsewhere."""

    def spread_pairs(self, value: Value, positions: Positions, weights: Array) -> Array:
        """The same for a complex Value whose positions count real and imaginary parts."""

    def from_numpy(self, array: npt.NDArray[Any], like: Value) -> Array: ...
    def native(self, given: Any, like: Value) -> Array:
        """A vector the user gave (any framework's, NumPy, a list) as an array that fits this Value."""

    def numpy(self, array: Array) -> npt.NDArray[Any]: ...
    def shape(self, array: Array) -> Shape: ...
    def reshape(self, array: Array, shape: Shape) -> Array: ...
    def transpose(self, array: Array) -> Array:
        """(a, b) -> (b, a)"""

    def take(self, array: Array, positions: Positions, axis: int) -> Array: ...
    def concat(self, arrays: Sequence[Array], axis: int) -> Array: ...
    def index(self, positions: Positions, like: Value) -> Array:
        """Flat positions as an index that lives where the Value does, for `gather` and `scatter`."""

    def gather(self, array: Array, index: Array) -> Array:
        """The elements of a flat array at an index."""

    def scatter(self, shape: Shape, index: Array, values: Array, like: Value) -> Array:
        """Zeros of this shape with values written at flat positions, each of which comes once."""

    def only(self, array: Array, mask: Array) -> Array:
        """The numbers where a mask of the same shape holds, zeros elsewhere."""

    def sum_at(self, size: int, index: Array, values: Array) -> Array:
        """A flat array of sums: each value is added at its position of the index."""

    def total(self, array: Array, axis: int) -> Array:
        """The sum along one axis."""

    def matmul(self, a: Array, b: Array) -> Array: ...
    def abs(self, array: Array) -> Array: ...
    def largest(self, array: Array) -> float:
        """The largest element as a Python number; 0 for an empty array."""

    def maxima(self, *arrays: Array) -> list[float]:
        """The largest element of each, none of them negative, in one transfer from the device; NaN where one holds a NaN."""

    def all_finite(self, array: Array) -> bool: ...
    def place(self, target: Array, at: tuple[Any, ...], source: Array) -> Array:
        """`target` with `source` written at an index; in place where the framework can."""

    def pairs(self, array: Array) -> Array:
        """A complex array as reals with a trailing axis of two."""

    def conjugate(self, array: Array) -> Array: ...
    def times_i(self, array: Array) -> Array: ...
    def complex(self, real: Array, imaginary: Array) -> Array: ...
    def cast(self, array: Array, like: Value) -> Array: ...
    def cast_like(self, array: Array, like: Array) -> Array: ...
    def isfinite(self, array: Array) -> npt.NDArray[np.bool_]: ...
    def finite_only(self, *arrays: Array) -> tuple[Array, ...] | None:
        """The entries at which all are finite; None if there is none."""

    def itemsize(self, value: Value) -> int: ...
    def precision(self, value: Value) -> float:
        """Machine epsilon of the dtype in which the sweep computes."""

    def is_complex(self, value: Value) -> bool: ...
    def free_memory(self, value: Value) -> int:
        """Bytes free where the answer would live."""


class Backend(Protocol):
    """A framework: what it owns, and how to record it."""

    name: str
    arrays: Arrays

    def owns(self, obj: Any) -> bool: ...
    def lift(self, obj: Any) -> Value:
        """The Value that a live tensor is now; raises where it has no history and cannot get one."""

    def tree(self, obj: Any) -> tuple[list[Any], Callable[[list[Any]], Any]] | None:
        """The tensors of a model or a container, and how to put answers in their places; None for a tensor."""

    def trace(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, values: bool = False
    ) -> Recording:
        """Run f once, for real, and remember the run; `values` keeps every number of it."""

    def record(self, **options: Any) -> AbstractContextManager[Recording]:
        """The same around a block of the user's code; a framework that cannot says so under "record" in capabilities."""

    def tap(self, name: str, tensor: Any, frame: Any) -> None:
        """Name a tensor in the recording that is running, if one is."""
    def capabilities(self) -> dict[str, str]:
        """What it cannot do: a word of the conformance table -> the sentence that says why."""


def random_signs(rows: int, columns: int, seed: int) -> npt.NDArray[np.float64]:
    """Probe weights that are never near zero, from a generator of our own: the user's random states stay untouched."""
    generator = np.random.default_rng(seed)
    return generator.choice([-1.0, 1.0], size=(rows, columns)) * generator.uniform(0.5, 1.5, size=(rows, columns))
