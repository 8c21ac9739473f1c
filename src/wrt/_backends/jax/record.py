"""One recorded run of JAX code, as the layers above see it."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import jax
import numpy as np

from wrt._backends.jax import compat, unreached
from wrt._backends.jax.engine import JaxEngine
from wrt._backends.jax.evidence import JaxEvidence
from wrt._backends.jax.flow import flow, last_weights, widest
from wrt._backends.jax.graph import Buffer, buffer_of, plain_graph
from wrt._backends.jax.loops import Loops
from wrt._backends.jax.models import followed, is_model
from wrt._backends.jax.names import Names
from wrt._backends.jax.program import Op, Program, Var, between
from wrt._backends.jax.recorded_function import JaxRecordedFunction
from wrt._backends.jax.recorder import Recorded, Recorder
from wrt._backends.jax.segment import structure
from wrt._core.bindings import Binding, Bindings
from wrt._core.flow import Flow, LocalMaps
from wrt._core.graph import Graph, Write
from wrt._core.index import Elements
from wrt._core.plan import Address
from wrt._core.protocol import Backend, Engine, Patches, Record, RecordedFunction
from wrt._core.thresholds import KEPT_ENGINES
from wrt._core.value import Part, Side, Value
from wrt._core.where import Where
from wrt.errors import EngineRefused, NotDifferentiable, NotRecorded, WrongIndex

RECENT: deque[weakref.ref[JaxRecord]] = deque(maxlen=16)
"""The latest recordings, the last one first."""
RUNNING: list[JaxRecord] = []


class JaxRecord:
    """The operations of one run, its inputs and outputs in the user's own containers, and its names."""

    recorded = True
    again: Any = None
    output: Any
    inputs: list[Any]
    keywords: dict[str, Any]

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.program = Program()
        self.recorder = Recorder(self.program)
        self.naming = Names(self)
        self.names: Bindings = self.naming.bindings
        self.loops = Loops(self)
        self._values: dict[Var, Value] = {}
        self._sides: dict[Value, Side] = {}
        self._answers: dict[Hashable, Any] = {}
        self._engines: OrderedDict[tuple[Var, ...], JaxEngine] = OrderedDict()
        self._flows: dict[tuple[Var, ...], Flow | None] = {}
        self._signatures: dict[Var, tuple[Hashable, dict[Var, int]]] = {}
        self._lock = threading.RLock()
        self._buffers: dict[Var, Buffer | None] = {}
        self._graph: Graph | None = None
        self._recorded: list[Op] = []
        self._numbers: dict[Var, int] | None = None

    # ---------------------------------------------------------------- recording

    def run(self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run f once on stand-ins for its arrays."""
        with compat.set_current_trace(self.recorder):  # what is made here may change while f runs: state of models
            given, words = jax.tree.map(self._stand_in, (args, kwargs))
            f = jax.tree.map(self._stand_in, f) if _holds_arrays(f) else f
        self.inputs, self.keywords = list(self._as_values(given)), dict(self._as_values(words))
        went_in = jax.tree.leaves((self.inputs, self.keywords))
        self.recorder.given = frozenset(value.key for value in went_in if isinstance(value, Value))
        self.recorder.on_inlined = self.naming.inlined
        self.recorder.on_emitted = self.loops.emitted
        models = [f, *given, *words.values()]
        self.stateful = any(map(is_model, models))
        self.naming.parameters(models)
        RUNNING.append(self)
        try:
            with (
                compat.set_current_trace(self.recorder),
                compat.read_again(),
                followed(models, self.naming.called),
                self.naming.watching(),
            ):
                found = f(*given, **words)
            self.output = self._as_values(found)
        finally:
            RUNNING.remove(self)
            self.recorder.on_inlined = self.recorder.on_emitted = None
            self.recorder.open = False
        self._recorded = list(self.program.ops)
        RECENT.appendleft(weakref.ref(self))
        self.program.send()
        self._run_effects()

    def _stand_in(self, leaf: Any) -> Any:
        if isinstance(leaf, compat.Tracer):
            raise EngineRefused(
                "wrt.trace was called with a tracer",
                "this code is itself being transformed by jit, grad or vmap, where arrays have no numbers",
                "call wrt.trace(f, x) outside, with f doing the jit or the grad",
            )
        if not _is_array(leaf):
            return leaf
        var = self.recorder.var_of(leaf)
        if isinstance(leaf, np.ndarray):
            self.recorder.constants[id(leaf)] = (leaf, var)  # `d(x)` of what went in finds it
        return self.recorder.wrap(var)

    def _as_values(self, tree: Any) -> Any:
        def value(leaf: Any) -> Any:
            return self.value_of(self.recorder.var_of(leaf)) if _is_array(leaf) else leaf

        return jax.tree.map(value, tree)

    def _run_effects(self) -> None:
        """Prints and callbacks happen in the user's run, once, also where nothing depends on them."""
        for op in self._recorded:
            if op.effects:
                self.program.run(op)

    def map_tree(self, tree: Any, wrap: Callable[[Value], Any]) -> Any:
        return jax.tree.map(lambda leaf: wrap(leaf) if isinstance(leaf, Value) else leaf, tree)

    def value_of(self, var: Var) -> Value:
        known = self._values.get(var)
        if known is None:
            known = self._values[var] = Value(self, var, tuple(var.aval.shape), var.aval.dtype)
        return known

    # ---------------------------------------------------------------- what was recorded

    def names_of(self, var: Var) -> set[str]:
        return self.naming.of(var)

    def bound(self, binding: Binding) -> Value:
        var = binding.object.key
        return Value(self, var, tuple(var.aval.shape), var.aval.dtype, binding.name)

    @property
    def changes(self) -> str:
        changing = self.stateful or any(op.effects for op in self._recorded)
        return "it calls back into Python, or has a model with a state" if changing else ""

    @property
    def graph(self) -> Graph:
        if self._graph is None:
            outputs = [leaf.key for leaf in jax.tree.leaves(self.output) if isinstance(leaf, Value)]
            inputs = [v.key for v in jax.tree.leaves((self.inputs, self.keywords)) if isinstance(v, Value)]
            self._graph = plain_graph(self, self._recorded, inputs, outputs)
        return self._graph

    @contextmanager
    def open_loops(self, y: Value, x: Value) -> Iterator[tuple[JaxEvidence, int, int] | None]:
        target, source = self.loops.var_of(y), self.loops.var_of(x)
        with self.loops.written_out(target, source) as any_loop:
            inputs = [v.key for v in jax.tree.leaves((self.inputs, self.keywords)) if isinstance(v, Value)]
            ops = list(self.program.ops)
            evidence = JaxEvidence(self, ops, plain_graph(self, ops, inputs, [target])) if any_loop else None
            yield None if evidence is None else (evidence, evidence.numbers[target], evidence.numbers[source])

    def evidence(self) -> JaxEvidence:
        return JaxEvidence(self)

    def numbered(self, value: Value) -> int | None:
        if self.recorder.open:
            return self.evidence().numbers.get(self.loops.var_of(value))
        if self._numbers is None:  # asked for every name of a run: looked up once it has ended
            self._numbers = self.evidence().numbers
        return self._numbers.get(self.loops.var_of(value))

    def find(self, obj: Any) -> Value | None:
        if isinstance(obj, Recorded) and obj.recorder is self.recorder:
            return self.value_of(obj.stands_for)
        known = self.recorder.constants.get(id(obj))
        return self.value_of(known[1]) if known is not None and known[0] is obj else None

    def where(self, value: Value) -> Where | None:
        op = self.loops.var_of(value).op
        return op.where if op is not None else None

    def line_of(self, made: Any) -> Where | None:
        found = self.find(made)
        return None if found is None else self.where(found)

    def value(self, value: Value) -> Any:
        return self.program.value(self.loops.var_of(value))

    def join(self, other: Record) -> Record | None:
        return self if isinstance(other, BareRecord) else None

    # ---------------------------------------------------------------- versions

    def buffer(self, var: Var) -> Buffer | None:
        """The chain of `.at[i].set` updates that ends here; None for an array made by one operation."""
        if var not in self._buffers:
            self._buffers[var] = buffer_of(self, var)
        return self._buffers[var]

    def named_apart(self, a: Var, b: Var) -> bool:
        """Whether two arrays go by different names, so that neither is a version of the other."""
        first, second = ({name for name in self.names_of(v) if not name.endswith("()")} for v in (a, b))
        return bool(first) and bool(second) and not first & second

    def writes(self, value: Value) -> list[Write]:
        buffer = self.buffer(self.loops.var_of(value))
        return [] if buffer is None else buffer.writes()

    def at(self, value: Value, k: int) -> tuple[Value, Elements]:
        var = self.loops.var_of(value)
        buffer = self.buffer(var)
        versions = [var] if buffer is None else buffer.versions
        if not 0 <= k < len(versions):
            raise WrongIndex(
                f"there is no write {k} of this array",
                f"it was updated {len(versions) - 1} times",
                f"write .at(0), before the first update, up to .at({len(versions) - 1})",
            )
        return self.value_of(versions[k]), Elements.all(value.shape)

    def side(self, value: Value, elements: Elements) -> Side:
        if elements.shape is elements.of and (known := self._sides.get(value)) is not None:
            return known
        if value.record is not self:
            value = self._known(value)
        buffer = self.buffer(self.loops.var_of(value))
        if buffer is not None:
            return buffer.side(elements)
        side = Side(elements.shape, (Part(value, elements),))
        if elements.shape is elements.of and self._values.get(value.key) is value:
            self._sides[value] = side  # all of a Value of this run, which is what most questions are about
        return side

    def own(self, value: Value) -> Value:
        return value if value.record is self else self.find(value.key) or value

    def _known(self, value: Value) -> Value:
        """The Value of this run that a bare array was."""
        found = self.find(value.key)
        if found is None:
            raise NotRecorded(
                "x is not part of this run",
                f"the recorded function was not given this array of shape {value.shape}, and did not use it",
                "pass it to wrt.trace(f, x) as an argument, and ask about the same array",
            )
        return found

    # ---------------------------------------------------------------- differentiating

    def same(self, y: Value, x: Value) -> bool:
        return y.key is x.key

    def has_history(self, value: Value) -> bool:
        return value.record is self and value.key.differentiable

    def ready(self, y: Value, x: Side) -> None:
        for value in (y, *x.values):
            if not value.key.differentiable:
                raise NotDifferentiable(
                    f"d() of an array of {value.dtype}",
                    "whole numbers, booleans and random keys have no derivative; the path ends where they were made",
                    "ask for the floating-point array it was computed from, for example the embedding of token ids",
                )

    @property
    def _as_recorded(self) -> bool:
        """Whether numbers have the width that they had."""
        return bool(self.program.wide == compat.X64.value)

    def refuse_filled(self, value: Value) -> None:
        """Every `.at[i].set` made a Value of its own; but pieces that were computed from one another may be stacked."""
        var = self.loops.var_of(value)
        if var.op is not None and unreached.is_stacked(var):
            name = value.name or "y"
            raise NotRecorded(
                f"d({name})[i] / d({name})[j] of what was stacked",
                f"{unreached.told(var.op)} stacks copies of arrays computed from one another, and no later one reads it",
                'ask for the variables that were stacked, d(t["h", i]) / d(t["h", j]), with h their name',
            )

    def engine(self, y: Value, xs: Sequence[Value]) -> JaxEngine:
        if not self._as_recorded:
            raise EngineRefused(
                f"this run was recorded with 64-bit numbers {'on' if self.program.wide else 'off'}",
                f"jax_enable_x64 is {'off' if self.program.wide else 'on'} now, and the operations would round differently",
                f"ask inside `with jax.enable_x64({self.program.wide}):`",
            )
        with self._lock:
            key = self._vars(y, xs)
            found = self._engines.pop(key, None)
            if found is None:
                self.count_loops(y, xs)
                found = JaxEngine(self, y, xs)
            self._engines[key] = found
            while len(self._engines) > KEPT_ENGINES:
                self._engines.popitem(last=False)
            return found

    def _vars(self, y: Value, xs: Sequence[Value]) -> tuple[Var, ...]:
        return (self.loops.var_of(y), *map(self.loops.var_of, xs))

    def count_loops(self, y: Value, xs: Sequence[Value]) -> None:
        """Loops on the way are as long as they ran, from here on."""
        last, *ends = self._vars(y, xs)
        self.loops.count(last, ends)

    def outside(self) -> AbstractContextManager[None]:
        """A question about this run is no part of a function that is being transformed: it is computed for real."""
        return compat.outside() if compat.transforming() else nullcontext()

    def unreached(self, y: Value, x: Value) -> bool | Exception:
        return unreached.verdict(y.key, x.key, self.recorder.left, self._recorded, self.loops.decided)

    def notes(self, y: Value, x: Side) -> list[str]:
        noted = list(x.notes)
        branches = sum(left.how == "bool" for left in self.recorder.left)
        if branches:
            times = "once" if branches == 1 else f"{branches} times"
            noted.append(f"Python branched on values {times}: the derivative is that of the path taken")
        on_the_way = between(y.key, [value.key for value in x.values])[0]
        noted.extend(
            f"{unreached.told(op)}: a loop of open length, differentiated over the iterations it ran"
            for op in on_the_way
            if op in self.loops.counted
        )
        return noted

    # ---------------------------------------------------------------- what plans are made from

    def signature(self, y: Value, xs: Sequence[Value]) -> Hashable:
        var = self.loops.var_of(y)
        if var not in self._signatures:
            self._signatures[var] = structure(var)
        found, numbers = self._signatures[var]
        return found, *(numbers.get(self.loops.var_of(x), -1) for x in xs)

    def flow(self, y: Value, xs: Sequence[Value]) -> Flow | None:
        with self._lock:
            key = self._vars(y, xs)
            if key not in self._flows:
                self.count_loops(y, xs)
                ops, _ = between(key[0], key[1:])
                self._flows[key] = flow(key[0], key[1:], ops, self.value_of)
            return self._flows[key]

    def at_address(self, y: Value, xs: Sequence[Value], address: Address) -> Value | None:
        found = self.flow(y, xs)
        if found is None or not isinstance(address, int) or address >= len(found.sizes):
            return None
        return found.value(address)

    def last_weights(self, y: Value, xs: Sequence[Value]) -> tuple[Value, Any] | None:
        last, *ends = self._vars(y, xs)
        found = last_weights(last, between(last, ends)[0], ends, self.program.value)
        return None if found is None else (self.value_of(found[0]), found[1])

    def local_maps(self, y: Value, x: Value, *, certain: bool = False) -> LocalMaps | None:
        return None

    def widest(self, y: Value) -> int:
        return widest(self.loops.var_of(y))

    def patches(self, y: Value, rows: Elements, x: Value, columns: Elements) -> Patches | None:
        return None

    def recorded_function(self, y: Value, x: Value) -> RecordedFunction | None:
        return JaxRecordedFunction(self, y, x)

    @property
    def answers(self) -> dict[Hashable, Any] | None:
        """None while things are not as they were: nothing that is kept would be right."""
        return self._answers if self._as_recorded and not compat.transforming() else None


class BareRecord:
    """An array outside any recording: it has no history, but a recording may know it as an input or a constant.

    `d(t.output) / d(x)` finds x in t; anything else is refused in words.
    """

    recorded = False
    again: Any = None

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

    def refuse_filled(self, value: Value) -> None:
        """A bare array is what it is."""

    def has_history(self, value: Value) -> bool:
        return False

    def ready(self, y: Value, x: Side) -> None:
        raise not_recorded()

    def engine(self, y: Value, xs: Sequence[Value]) -> Engine:
        raise not_recorded()

    def value(self, value: Value) -> Any:
        return value.key

    def unreached(self, y: Value, x: Value) -> bool | Exception:
        return not_recorded()

    def notes(self, y: Value, x: Side) -> list[str]:
        return []

    def outside(self) -> AbstractContextManager[None]:
        return compat.outside() if compat.transforming() else nullcontext()

    def signature(self, y: Value, xs: Sequence[Value]) -> Hashable:
        return ()

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
        return None


def not_recorded() -> NotRecorded:
    return NotRecorded(
        "d() of a bare JAX array",
        "a JAX array carries no history: JAX differentiates functions, and nothing was recorded",
        "t = wrt.trace(f, x), then d(t.output) / d(t.inputs[0])",
    )


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, (jax.Array, float, complex)):
        return True
    return isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype != object and leaf.dtype.kind in "fciubV"


def _holds_arrays(f: Any) -> bool:
    return any(leaf is not f and _is_array(leaf) for leaf in jax.tree.leaves(f))
