"""One recorded run of JAX code, as the layers above see it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import jax
import numpy as np

from wrt._backends.jax import compat, cuts
from wrt._backends.jax.bare import BareRecord
from wrt._backends.jax.block import Row
from wrt._backends.jax.elsewhere import Elsewhere
from wrt._backends.jax.evidence import JaxEvidence
from wrt._backends.jax.graph import plain_graph
from wrt._backends.jax.inside import Inside
from wrt._backends.jax.models import followed
from wrt._backends.jax.names import Names
from wrt._backends.jax.program import Op, Program, Var, ancestors, between
from wrt._backends.jax.recorder import Recorded, Recorder
from wrt._backends.jax.sweep import JaxLinear
from wrt._backends.jax.writes import Buffer, buffer_of
from wrt._core.bindings import Binding, Bindings
from wrt._core.graph import Graph, Write
from wrt._core.index import Elements
from wrt._core.protocol import Backend, Record
from wrt._core.value import Part, Side, Value
from wrt._core.where import Where
from wrt.errors import EngineRefused, NotDifferentiable, NotRecorded, WrongIndex

KEPT = 16  # linear maps whose residuals are kept for the next question
FEW = 40  # operations that are looked at before a question is planned
RUNNING: list[JaxRecord] = []


class JaxRecord:
    """The operations of one run, its inputs and outputs in the user's own containers, and its names."""

    output: Any
    inputs: list[Any]
    keywords: dict[str, Any]

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.program = Program()
        self.recorder = Recorder(self.program)
        self.naming = Names(self)
        self.names: Bindings = self.naming.bindings
        self.inside = Inside(self)
        self.wide = bool(jax.config.jax_enable_x64)
        self._values: dict[Var, Value] = {}
        self._sides: dict[Value, Side] = {}
        self._asked_before: dict[Any, Any] = {}
        self._rows: dict[tuple[Var, Var], Row | None] = {}
        self._linear: OrderedDict[tuple[int, ...], JaxLinear] = OrderedDict()
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
        self.recorder.on_emitted = self.inside.emitted
        models = [f, *given, *words.values()]
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

    def mapped(self, tree: Any, wrap: Callable[[Value], Any]) -> Any:
        """A container of the user's with every Value in it wrapped."""
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
    def graph(self) -> Graph:
        if self._graph is None:
            outputs = [leaf.key for leaf in jax.tree.leaves(self.output) if isinstance(leaf, Value)]
            inputs = [v.key for v in jax.tree.leaves((self.inputs, self.keywords)) if isinstance(v, Value)]
            self._graph = plain_graph(self, self._recorded, inputs, outputs)
        return self._graph

    @contextmanager
    def laid_open(self, y: Value, x: Value) -> Iterator[tuple[JaxEvidence, int, int] | None]:
        """Inside, short loops between x and y are the operations of their iterations, so that `why` can look at these."""
        target, source = self.inside.settled(y), self.inside.settled(x)
        with self.inside.laid_open(target, source) as any_loop:
            inputs = [v.key for v in jax.tree.leaves((self.inputs, self.keywords)) if isinstance(v, Value)]
            ops = list(self.program.ops)
            evidence = JaxEvidence(self, ops, plain_graph(self, ops, inputs, [target])) if any_loop else None
            yield None if evidence is None else (evidence, evidence.numbers[target], evidence.numbers[source])

    def evidence(self) -> JaxEvidence:
        """The run under examination, for `why` and `check`."""
        return JaxEvidence(self)

    def numbered(self, value: Value) -> int | None:
        """Which array of the graph a Value is."""
        if self.recorder.open:
            return self.evidence().numbers.get(self.inside.settled(value))
        if self._numbers is None:  # asked for every name of a run: looked up once it has ended
            self._numbers = self.evidence().numbers
        return self._numbers.get(self.inside.settled(value))

    def find(self, obj: Any) -> Value | None:
        if isinstance(obj, Recorded) and obj._trace is self.recorder:
            return self.value_of(obj.stands_for)
        known = self.recorder.constants.get(id(obj))
        return self.value_of(known[1]) if known is not None and known[0] is obj else None

    def where(self, value: Value) -> Where | None:
        op = self.inside.settled(value).op
        return op.where if op is not None else None

    def line_of(self, made: Any) -> Where | None:
        found = self.find(made)
        return None if found is None else self.where(found)

    def value(self, value: Value) -> Any:
        return self.program.value(self.inside.settled(value))

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
        buffer = self.buffer(self.inside.settled(value))
        return [] if buffer is None else buffer.writes()

    def at(self, value: Value, k: int) -> tuple[Value, Elements]:
        var = self.inside.settled(value)
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
            value = self._own(value)
        buffer = self.buffer(self.inside.settled(value))
        if buffer is not None:
            return buffer.side(value, elements)
        side = Side(elements.shape, (Part(value, elements),))
        if elements.shape is elements.of and self._values.get(value.key) is value:
            self._sides[value] = side  # all of a Value of this run, which is what most questions are about
        return side

    def _own(self, value: Value) -> Value:
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
        if not self._as_recorded:
            raise EngineRefused(
                f"this run was recorded with 64-bit numbers {'on' if self.wide else 'off'}",
                f"jax_enable_x64 is {'off' if self.wide else 'on'} now, and the operations would round differently",
                f"ask inside `with jax.enable_x64({self.wide}):`",
            )

    @property
    def asked_before(self) -> dict[Any, Any]:
        """Questions that one compiled program answers, see `_run/again.py`; none while things are not as they were."""
        as_it_was = self.wide == compat.X64.value and compat.CONTEXT.trace is compat.FOR_REAL
        return self._asked_before if as_it_was else {}

    @property
    def _as_recorded(self) -> bool:
        """Whether numbers have the width that they had."""
        return self.wide == compat.X64.value

    def linear(self, y: Value, xs: Sequence[Value]) -> JaxLinear:
        key = (id(self.inside.settled(y)), *(id(self.inside.settled(x)) for x in xs))
        found = self._linear.pop(key, None)
        if found is None:
            self.inside.count_loops(y.key, [x.key for x in xs])
            found = JaxLinear(self, y, xs)
        self._linear[key] = found
        found.compiled.heat.asked += 1
        while len(self._linear) > KEPT:
            self._linear.popitem(last=False)
            self._asked_before.clear()  # these may hold what was just dropped
            self._rows.clear()
        return found

    def elsewhere(self, y: Value, x: Value) -> Elsewhere:
        """The same operations on other numbers."""
        return Elsewhere(self, y, x)

    def glance(self, y: Value) -> int | None:
        """How many operations led to y, for the planner; None where they are many or heavy."""
        ops = ancestors(self.inside.settled(y))
        heavy = compat.CONTROL | {"conv_general_dilated"}
        return None if len(ops) > FEW or any(op.name in heavy for op in ops) else len(ops)

    def outside(self) -> AbstractContextManager[None]:
        """Inside, things are computed for real: a question about this run is no part of a function being transformed."""
        return compat.outside() if compat.transforming() else nullcontext()

    def row(self, y: Value, x: Value, position: int) -> Any:
        """One row with respect to all of x, in x's own shape; None where more has to be looked at."""
        known = self._known_row(y, x)
        return None if known is None else known(position)

    def element(self, y: Value, x: Value, position: int, there: int) -> Any:
        """One element of y with respect to one of x; None where more has to be looked at."""
        known = self._known_row(y, x)
        return None if known is None else known.element(position, there)

    def _known_row(self, y: Value, x: Value) -> Row | None:
        if not self._as_recorded or compat.transforming():
            return None
        key = (y.key, x.key)
        if key not in self._rows:
            self._rows[key] = self._row(y, x)
        return self._rows[key]

    def row_again(self, y: Value, x: Value, position: int, elements: Elements) -> Callable[[], Any] | None:
        """The call that gives these elements of a row once more, see `_run/again.py`; None where there is none yet."""
        known = self._rows[y.key, x.key]
        return None if known is None else known.again(position, elements)

    def _row(self, y: Value, x: Value) -> Row | None:
        arrays = self.backend.arrays
        if x.record is not self or y.key is x.key or arrays.is_complex(y) or arrays.is_complex(x):
            return None
        if not (y.key.differentiable and x.key.differentiable):
            return None
        return self.linear(y, (x,)).row()

    def unreached(self, y: Value, x: Value) -> bool | Exception:
        return cuts.verdict(y.key, x.key, self.recorder.left)

    def notes(self, y: Value, x: Side) -> list[str]:
        noted = list(x.notes)
        branches = sum(left.how == "bool" for left in self.recorder.left)
        if branches:
            times = "once" if branches == 1 else f"{branches} times"
            noted.append(f"Python branched on values {times}: the derivative is that of the path taken")
        on_the_way = between(y.key, [value.key for value in x.values])[0]
        noted.extend(
            f"{cuts.told(op)}: a loop of open length, differentiated over the iterations it ran"
            for op in on_the_way
            if op in self.inside.counted
        )
        return noted


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, (jax.Array, float, complex)):
        return True
    return isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype != object and leaf.dtype.kind in "fciubV"


def _holds_arrays(f: Any) -> bool:
    return any(leaf is not f and _is_array(leaf) for leaf in jax.tree.leaves(f))
