"""Everything a backend is asked for. Nothing is optional: what a framework cannot do it declares in `capabilities`.

A batch of k seeds has a leading axis of k. Arrays are the framework's own, on the device where they live; NumPy is for
index arithmetic and for judging proofs. `None` from a sweep means "structurally no path", never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from wrt._core.flow import Flow, LocalMaps
from wrt._core.graph import Graph, Write
from wrt._core.index import Elements, Positions, Shape
from wrt._core.pattern import Compression
from wrt._core.plan import Address
from wrt._core.value import Side, Value
from wrt._core.where import Where

if TYPE_CHECKING:
    from wrt._core.bindings import Binding, Bindings
    from wrt._core.evidence import Evidence

Array = Any  # a tensor of the framework; the layers above never look inside
Numbers = npt.NDArray[Any]
Marks = npt.NDArray[np.bool_]

Capability = Literal["record", "intermediate", "same tensor", "unconnected", "complex", "second order", "push"]
"""Words of the conformance table."""


class CannotSweep(Exception):
    """The engine has no derivative this way; `explain()` says so, and another plan is tried."""


@dataclass(slots=True)
class Swept:
    """What a sweep gave for each x (for y, after a push): (k, *shape), None where no path leads there.

    `method` is how the framework did it (vmap, pfor, one compiled program, one by one), in `calls` calls of its engine;
    `refused` says why each quicker method was not used.
    """

    arrays: list[Array | None]
    method: str
    calls: int = 1
    refused: tuple[str, ...] = ()


class Engine(Protocol):
    """The derivative of y with respect to several Values, at the recorded point, by the framework's own engine.

    Sweeps are adjoint to one another over the reals: <u, J t> = <pull(u), t> with the real inner product.
    """

    can_pull: bool
    """Whether a backward pass exists at all: a loop of open length in JAX has none."""
    can_push: bool
    """Whether columns can be swept."""
    push_cost: float
    """What a push costs next to a pull, by the operations on the way as far as that is known without a walk."""

    def plain(self, seed: Array, *, then_push: bool = False) -> list[Array | None]:
        """One unbatched pull: (1, *y.shape) -> for each x its gradient, with or without the leading axis. Proofs rest on it.

        `then_push` announces pushes, which some engines set up by a pull: this one may be it.
        """

    def pull(self, seeds: Array, *, batched: bool = True) -> Swept:
        """(k, *y.shape) -> for each x (k, *x.shape). Not `batched`: one plain pass after another."""

    def push(self, tangents: Sequence[Array | None], *, batched: bool = True) -> Swept:
        """For each x (k, *x.shape), None for zeros -> (k, *y.shape). Raises CannotSweep."""

    def pull_traceable(self, seeds: Array, by: Sequence[Value]) -> list[Value | None]:
        """Like pull, but each result is a Value that can be differentiated again, with respect to these."""

    def reach(self, rows: Positions, *, certain: bool = False) -> Marks | None:
        """(rows, x.size): where these rows of a single x can be nonzero, by the operations on the way; None where not every
        operation tells. `certain`: whatever the numbers are."""


class Patches(Protocol):
    """The part of every layer between some rows and some columns of a local map, swept by the framework's own operators.

    `work` counts the multiplications of a pull through it, `whole` those of a pull through the whole tensors.
    """

    work: float
    whole: float

    def pull(self, seeds: Array) -> Array | None:
        """(k, rows) -> (k, columns); None where what the graph had saved is gone."""


class RecordedFunction(Protocol):
    """The stretch of a run that a question is about, as a function of what the run was given."""

    connected: bool

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Array]:
        """The arrays that were given, in the order of those of the run; refused where they are not like those."""

    def is_traced(self, leaves: Sequence[Array]) -> bool:
        """Whether this is itself being transformed: there are no numbers to look at."""

    def engine(self, y: Value, xs: Sequence[Value], leaves: Sequence[Array]) -> Engine:
        """The engine between two Values of the run at another point; traceable."""

    def reach(self, rows: Positions) -> Marks | None:
        """As `Engine.reach`, for every point."""

    def takes(self, way: Literal["pull", "push"]) -> bool:
        """Whether every operation has a derivative this way."""

    def compiled(self, answer: Callable[[Sequence[Array]], Any]) -> Callable[[Sequence[Array]], Any]: ...

    def sparse(self, values: Array, rows: Positions, columns: Positions, shape: tuple[int, int]) -> Any:
        """The framework's own sparse array."""


class Record(Protocol):
    """One run whose history is at hand: a live autograd graph, a tape, a jaxpr."""

    backend: Backend
    recorded: bool
    """Whether the run was recorded: then it is a `Recording`. A live graph and a bare array are not."""
    again: Callable[[Value, Value], str | Exception] | None
    """Runs the traced function at a moved x: what to say, or the error where y moves. None: no function is at hand."""

    @property
    def graph(self) -> Graph | None:
        """The run as plain data; None where nothing was recorded (a live graph)."""

    def join(self, other: Record) -> Record | None:
        """The record in which Values of both can be asked about; None where the two runs do not meet."""

    def side(self, value: Value, elements: Elements) -> Side:
        """What these elements mean as a denominator: the value last written there, the base of a view."""

    def same(self, y: Value, x: Value) -> bool:
        """Whether two Values are one tensor at one moment."""

    def refuse_filled(self, value: Value) -> None:
        """Raise where one tensor was filled piece by piece and its history does not tell the pieces apart."""

    def has_history(self, value: Value) -> bool:
        """Whether a sweep can start or end at this Value."""

    def ready(self, y: Value, x: Side) -> None:
        """Raise where there is no history to differentiate."""

    def engine(self, y: Value, xs: Sequence[Value]) -> Engine:
        """The engine between Values of this record."""

    def value(self, value: Value) -> Array:
        """The numbers a Value had at its moment."""

    def unreached(self, y: Value, x: Value) -> bool | Exception:
        """Why nothing flows from x to y: True when independence is proven, otherwise the error to raise."""

    def notes(self, y: Value, x: Side) -> list[str]:
        """What `explain()` must mention: hooks met, elements written twice, random operations."""

    def outside(self) -> AbstractContextManager[None]:
        """While answers are computed: none of the user's transformations and modes."""

    # ---- what plans are made from

    def signature(self, y: Value, xs: Sequence[Value]) -> Hashable:
        """The structure of everything that led to y, and where xs stand in it: what a plan is remembered by."""

    def flow(self, y: Value, xs: Sequence[Value]) -> Flow | None:
        """The graph between y and x for the planner; None where nothing leads there or it is too large to walk."""

    def at_address(self, y: Value, xs: Sequence[Value], address: Address) -> Value | None:
        """The Value at an address that `Flow.address` gave in another run of the same program; None where there is none."""

    def last_weights(self, y: Value, xs: Sequence[Value]) -> tuple[Value, Array] | None:
        """Where y is a matrix, which does not depend on xs, times another Value: that Value, and the matrix as a batch of
        its cotangents, (y.size, *value.shape)."""

    def local_maps(self, y: Value, x: Value, *, certain: bool = False) -> LocalMaps | None:
        """Which elements meet in each operation between y and x; None where one is not known to be simple."""

    def widest(self, y: Value) -> int:
        """Numbers in the widest tensor near y, as a look at the last operations tells; y's own where nothing does."""

    def patches(self, y: Value, rows: Elements, x: Value, columns: Elements) -> Patches | None:
        """What lies between these rows and columns; None where the map is not known to be local."""

    def recorded_function(self, y: Value, x: Value) -> RecordedFunction | None:
        """The same question at other points; None where a run cannot be had at other points."""

    @property
    def answers(self) -> dict[Hashable, Any] | None:
        """Answers of a run that cannot change, kept by question; None where it can (a live graph, buffers, hooks)."""


class Recording(Record, Protocol):
    """One run that was recorded: what the user's names, modules, inputs and outputs were, and every in-place write.

    `output` and `inputs` are the user's own containers with a Value in the place of every tensor; other leaves stay.
    """

    @property
    def changes(self) -> str:
        """What a second run of the function would change that is not put back; empty where nothing was seen."""

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

    def own(self, value: Value) -> Value:
        """A Value of another record as this run knows it; the same Value where it does not."""

    def numbered(self, value: Value) -> int | None:
        """Which tensor of the graph a Value is."""

    def where(self, value: Value) -> Where | None:
        """The user's line that made a Value."""

    def map_tree(self, tree: Any, wrap: Callable[[Value], Any]) -> Any:
        """A container of the run (`output`, `inputs`) with something else in the place of every Value."""

    def evidence(self) -> Evidence:
        """The run under examination, for `why` and `check`."""

    def open_loops(self, y: Value, x: Value) -> AbstractContextManager[tuple[Evidence, int, int] | None]:
        """The run with its loops written out between x and y, and the numbers of both there; None where there are none."""

    def line_of(self, made: Any) -> Where | None:
        """The user's line that made a tensor, or a node of the framework's own graph where it has one."""

    def writes(self, value: Value) -> list[Write]:
        """In-place writes (or functional updates) of its buffer, in order."""

    def at(self, value: Value, k: int) -> tuple[Value, Elements]:
        """The same elements after k writes: the Value its buffer was then, and which elements of it they are."""


class Arrays(Protocol):
    """The array operations that planning, execution and proofs need, in the framework's own arrays."""

    def zeros(self, shape: Shape, like: Value) -> Array: ...

    def one_hot(self, value: Value, positions: Positions) -> Array:
        """(k, *value.shape): a one at each flat position."""

    def spread(self, value: Value, positions: Positions, weights: Array) -> Array:
        """(k, *value.shape) from weights (k, len(positions)), summed where a position comes twice; zero elsewhere."""

    def spread_pairs(self, value: Value, positions: Positions, weights: Array) -> Array:
        """The same for a complex Value whose positions count real and imaginary parts."""

    def from_numpy(self, array: Numbers, like: Value) -> Array: ...
    def native(self, given: Any, like: Value) -> Array:
        """A vector the user gave (any framework's, NumPy, a list) as an array that fits this Value."""

    def numpy(self, array: Array) -> Numbers: ...
    def shape(self, array: Array) -> Shape: ...
    def reshape(self, array: Array, shape: Shape) -> Array: ...
    def transpose(self, array: Array) -> Array:
        """(a, b) -> (b, a)"""

    def permute(self, array: Array, order: Sequence[int]) -> Array: ...
    def take(self, array: Array, positions: Positions, axis: int) -> Array: ...
    def concat(self, arrays: Sequence[Array], axis: int) -> Array: ...
    def place_passes(self, shape: Shape, compression: Compression, values: Array, like: Value) -> Array | None:
        """All slots of the passes where they belong, placed by the device itself; None where positions have to be listed."""

    def scatter(self, shape: Shape, positions: Positions, values: Array, like: Value) -> Array:
        """Zeros of this shape with values written at flat positions, each of which comes once."""

    def strided(self, shape: Shape, values: Array, start: int, strides: Shape) -> Array:
        """Zeros of this shape with the values among them: the first at `start` of the flat array, the others in steps."""

    def sheet(self, shape: Shape, like: Value) -> Sheet:
        """An answer that is written some lines at a time."""

    def total(self, array: Array, axis: int) -> Array:
        """The sum along one axis."""

    def matmul(self, a: Array, b: Array) -> Array: ...
    def contract(self, equation: str, a: Array, b: Array) -> Array:
        """A product of two arrays as einsum writes it."""

    def add_to_diagonal(self, array: Array, number: float) -> Array: ...
    def abs(self, array: Array) -> Array: ...
    def largest(self, array: Array) -> float:
        """The largest element as a Python number; 0 for an empty array."""

    def weighted_columns(self, weights: Numbers, array: Array, norms: Numbers | None = None) -> tuple[Numbers, Numbers]:
        """For an (m, n) array: weights @ array, and the 2-norm of each column (where they are not known already), (n,) each.

        In double precision, or in pieces short enough that sums leave no more than a few roundings of a column's size.
        """

    def nonzero(self, array: Array, rounding: float) -> Marks:
        """Where numbers are larger than so many times the largest of their line (0: not zero); a NaN counts."""

    def all_finite(self, array: Array) -> bool: ...
    def isfinite(self, array: Array) -> Marks: ...
    def place(self, target: Array, at: tuple[Any, ...], source: Array) -> Array:
        """`target` with `source` written at an index; in place where the framework can."""

    def pairs(self, array: Array) -> Array:
        """A complex array as reals with a trailing axis of two."""

    def conjugate(self, array: Array) -> Array: ...
    def times_i(self, array: Array) -> Array: ...
    def complex(self, real: Array, imaginary: Array) -> Array: ...
    def cast(self, array: Array, like: Value) -> Array: ...
    def cast_like(self, array: Array, like: Array) -> Array: ...
    def itemsize(self, value: Value) -> int: ...
    def precision(self, value: Value) -> float:
        """The rounding of the type in which sweeps from or to this Value compute: 2^-23 for float32, 2^-11 for TF32."""

    def is_complex(self, value: Value) -> bool: ...
    def accelerated(self, value: Value) -> bool:
        """Whether sweeps run on a device that wants large batches, told what to do by a host that does not wait for it."""

    def free_memory(self, value: Value) -> int:
        """Bytes free where the answer would live."""


class Sheet(Protocol):
    """An array that is written some lines at a time, each line once."""

    def write(self, start: int, block: Array, *, columns: bool) -> None:
        """Rows from `start` on as (k, n), or columns as (k, m)."""

    def array(self) -> Array:
        """All of it, once everything is written."""


class Backend(Protocol):
    """A framework: what it owns, and how to record it."""

    name: str
    arrays: Arrays
    takes_numbers: bool
    """Whether a Python float is as good as an array of the framework."""
    writes_in_place: bool
    """Whether an update changes a tensor; elsewhere it makes a new one."""

    def owns(self, obj: Any) -> bool: ...
    def lift(self, obj: Any) -> Value:
        """The Value that a live tensor is now; raises where it has no history and cannot get one."""

    def recorded(self, obj: Any) -> Value | None:
        """Its Value in the latest recording that saw it, whatever its dtype; None where no recording did."""

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

    def capabilities(self) -> dict[Capability, str]:
        """What it cannot do: a word of the conformance table -> the sentence that says why."""


def random_signs(rows: int, columns: int, seed: int) -> npt.NDArray[np.float64]:
    """Weights in ±[0.5, 1.5], drawn continuously: two equal ones would hide that two rows were exchanged.

    From a generator of our own: the user's random states stay untouched.
    """
    generator = np.random.default_rng(seed)
    return generator.choice([-1.0, 1.0], size=(rows, columns)) * generator.uniform(0.5, 1.5, size=(rows, columns))
