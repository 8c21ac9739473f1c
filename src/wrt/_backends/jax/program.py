"""A recorded run: its operations in order, and the numbers that are known so far."""

from __future__ import annotations

import weakref
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import FunctionType
from typing import Any

import jax
import numpy as np

from wrt._backends.jax import compat
from wrt._backends.jax.thresholds import KEPT_PROGRAMS
from wrt._core.where import Where, place, user_files


@dataclass(slots=True, eq=False, repr=False)
class Var:
    """One array of the run; `op` made it as its how-many-th output, None for what was there before."""

    aval: Any
    op: Op | None = None
    output: int = 0
    differentiable: bool = field(init=False)

    def __post_init__(self) -> None:
        self.differentiable = compat.is_differentiable(self.aval.dtype)


@dataclass(slots=True, eq=False, repr=False)
class Op:
    """One operation of the run, as it would stand in a jaxpr."""

    primitive: Any
    params: dict[str, Any]
    inputs: tuple[Var, ...]
    outputs: tuple[Var, ...]
    source: Any
    context: Any
    effects: Any = ()
    number: int = 0
    _sources: dict[bool, list[frozenset[int]]] = field(default_factory=dict)
    calls: tuple[str, ...] = ()
    """Jitted functions that it came out of, the outermost first."""

    @property
    def name(self) -> str:
        return str(self.primitive.name)

    @property
    def where(self) -> Where | None:
        """The user's line, found when somebody asks."""
        return place_of(self.source)

    @property
    def cuts(self) -> bool:
        """Whether no gradient can pass, although the value does."""
        return self.name == "stop_gradient" or not any(v.differentiable for v in self.outputs)

    @property
    def happened_once(self) -> bool:
        """Whether it did something beside computing, such as printing: it is not run again for its value."""
        return bool(self.effects)

    @property
    def exact(self) -> bool:
        """Whether only whole numbers and booleans are at work: nothing is rounded, however it is compiled."""
        return not (self.happened_once or any(v.differentiable for v in (*self.inputs, *self.outputs)))

    def sources(self, outputs: Container[Var], *, gradient: bool = True) -> list[Var]:
        """The inputs from which the value, or the gradient, reaches any of these outputs."""
        if self.name not in compat.CONTROL:
            return [] if gradient and self.cuts else [v for v in self.inputs if not gradient or v.differentiable]
        if gradient not in self._sources:
            labels = [frozenset((k,)) if not gradient or v.differentiable else NONE for k, v in enumerate(self.inputs)]
            self._sources[gradient] = through(self.name, self.params, labels, self.outputs, gradient=gradient)
        wanted = (labels for v, labels in zip(self.outputs, self._sources[gradient], strict=True) if v in outputs)
        return [self.inputs[k] for k in sorted(NONE.union(*wanted))]

    def reached(self, inputs: Container[Var], *, gradient: bool = True) -> list[Var]:
        """The outputs that the value, or the gradient, of any of these inputs reaches."""
        if self.name not in compat.CONTROL:  # every output comes from the same inputs
            return list(self.outputs) if any(u in inputs for u in self.sources(self.outputs, gradient=gradient)) else []
        return [v for v in self.outputs if any(u in inputs for u in self.sources((v,), gradient=gradient))]

    def apply(self, values: Sequence[Any]) -> list[Any]:
        with self.context.manager:
            return compat.bind(self.primitive, values, self.params)


@dataclass(slots=True)
class Program:
    """Operations in an order in which they can run; `values` of inputs and constants, and of what was needed since."""

    ops: list[Op] = field(default_factory=list)
    wide: bool = field(default_factory=lambda: bool(compat.X64.value))
    """Whether there were numbers of 64 bits when it was recorded."""
    _values: dict[Var, Any] = field(default_factory=dict)
    _waiting: dict[Var, Any] = field(default_factory=dict)
    """Numbers in NumPy's hands: sent to JAX one by one, they would take longer than all that is recorded between."""

    @property
    def values(self) -> dict[Var, Any]:
        if self._waiting:
            self.send()
        return self._values

    def send(self) -> None:
        """All numbers that wait, in one call; they have the width that is set now."""
        with compat.outside():
            self._values.update(zip(self._waiting, jax.device_put(list(self._waiting.values())), strict=True))
        self._waiting.clear()

    def leaf(self, array: Any) -> Var:
        """A Var for numbers that are there already."""
        var = Var(compat.aval_of(array))
        taken = compat.canonical(array, var.aval)
        (self._waiting if isinstance(taken, np.ndarray) else self._values)[var] = taken
        return var

    def value(self, var: Var) -> Any:
        """The numbers of a Var; what they are computed from is computed first, once."""
        if var not in self.values and var.op is not None:
            self.run(var.op)
        return self.values[var]

    def run(self, last: Op) -> None:
        """Run an operation, and before it what it needs: by JAX, one by one.

        So a number has the same bits whatever was asked for before, those of the function run without `jit`. What is not
        rounded can be compiled as one program, which takes as long as a single operation.
        """
        with compat.outside(), compat.width(self.wide):
            needed = self._needed(last)
            if len(needed) > 1 and all(op.exact for op in needed):
                self._run_together(needed)
                return
            for op in needed:
                found = op.apply([self.values[v] for v in op.inputs])
                self.values.update(zip(op.outputs, found, strict=True))

    def _run_together(self, ops: list[Op]) -> None:
        numbers: dict[Var, int] = {}
        steps = tuple(
            Step.of(op, [[numbers.setdefault(v, len(numbers)) for v in several] for several in (op.inputs, op.outputs)])
            for op in ops
        )
        made = [v for op in ops for v in op.outputs]
        given = [v for v in numbers if v not in frozenset(made)]
        program = _compiled(steps, tuple(numbers[v] for v in given), tuple(numbers[v] for v in made))
        self.values.update(zip(made, program([self.values[v] for v in given]), strict=True))

    def _needed(self, last: Op) -> list[Op]:
        """Operations that were not run yet and lead to this one, in order."""
        needed: list[Op] = []
        seen: set[int] = set()
        waiting = [last]
        while waiting:
            op = waiting.pop()
            if id(op) in seen:
                continue
            seen.add(id(op))
            needed.append(op)
            waiting.extend(v.op for v in op.inputs if v not in self.values and v.op is not None)
        return sorted(needed, key=lambda op: op.number)

    def number(self) -> None:
        """Count the operations again after some were replaced."""
        for k, op in enumerate(self.ops):
            op.number = k


@dataclass(frozen=True, slots=True)
class Step:
    """One operation between numbered arrays, which can be compared.

    `still` are the inputs that move with x although no derivative passes here: only their values count.
    """

    primitive: Any
    params: tuple[tuple[str, Any], ...]
    context: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    still: frozenset[int] = frozenset()

    @classmethod
    def of(cls, op: Op, numbers: Sequence[Sequence[int]], still: Iterable[int] = ()) -> Step:
        inputs, outputs = map(tuple, numbers)
        return cls(op.primitive, comparable(op.params), op.context, inputs, outputs, frozenset(still))

    def run(self, arrays: dict[int, Any]) -> None:
        params = {name: given.thing if isinstance(given, Alike) else given for name, given in self.params}
        given = [jax.lax.stop_gradient(arrays[k]) if k in self.still else arrays[k] for k in self.inputs]
        with self.context.manager:
            found = compat.bind(self.primitive, given, params)
        arrays.update(zip(self.outputs, found, strict=True))


@lru_cache(maxsize=KEPT_PROGRAMS)
def _compiled(steps: tuple[Step, ...], given: tuple[int, ...], made: tuple[int, ...]) -> Any:
    def program(arrays: Sequence[Any]) -> list[Any]:
        known = dict(zip(given, arrays, strict=True))
        for step in steps:
            step.run(known)
        return [known[k] for k in made]

    return jax.jit(program)


def between(y: Var, xs: Iterable[Var]) -> tuple[list[Op], list[bool]]:
    """Operations that carry a derivative from any of xs to y, in order; and which of xs reach y at all."""
    xs = list(xs)
    feeding = {y}
    carrying: list[Op] = []
    for op in reversed(ancestors(y)):
        if not feeding.isdisjoint(op.outputs) and (sources := op.sources(feeding)):
            carrying.append(op)
            feeding.update(sources)
    reached = set(xs)
    found: list[Op] = []
    for op in reversed(carrying):
        if not reached.isdisjoint(op.inputs) and (further := op.reached(reached)):
            found.append(op)
            reached.update(v for v in further if v.differentiable and v in feeding)
    return found, [x in feeding and x.differentiable for x in xs]


def ancestors(y: Var) -> list[Op]:
    """Every operation that y is computed from, in order."""
    seen: set[int] = set()
    found: list[Op] = []
    waiting = [y]
    while waiting:
        op = waiting.pop().op
        if op is not None and id(op) not in seen:
            seen.add(id(op))
            found.append(op)
            waiting.extend(op.inputs)
    return sorted(found, key=lambda op: op.number)


def place_of(source: Any) -> Where | None:
    """The innermost line of the user's own code."""
    for code, offset in compat.raw_frames(source):
        if user_files[code.co_filename]:
            return place(code, offset)
    return None


# ---------------------------------------------------------------- which parameters mean the same
#
# Those of a second recording of the same code are other objects: JAX reads the body of a loop anew where it is a lambda, and
# wraps a rule of the user's own anew at every call. Jaxprs are compared operation by operation, wrappers by what they wrap; a
# function of the user's own is equal to itself alone.


class Structure:
    """Parts that are compared; their hash is known."""

    __slots__ = ("__weakref__", "_hash", "_parts")

    def __init__(self, parts: Hashable) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Structure) and self._hash == other._hash and self._parts == other._parts


class Alike:
    """A parameter, equal to others of the same structure."""

    __slots__ = ("structure", "thing")

    def __init__(self, thing: Any, structure: Hashable) -> None:
        self.thing, self.structure = thing, structure

    def __hash__(self) -> int:
        return hash(self.structure)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike) and self.structure == other.structure


class Only:
    """A thing that is equal to itself alone."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Only) and self.thing is other.thing


_KNOWN: weakref.WeakKeyDictionary[Any, Structure] = weakref.WeakKeyDictionary()


def comparable(params: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Parameters of an operation as something that can be looked up."""
    return tuple((name, given if type(given) in _PLAIN else Alike(given, _structure(given))) for name, given in params.items())


_PLAIN = frozenset({bool, int, float, str, type(None)})


def _structure(thing: Any) -> Hashable:
    if isinstance(thing, (tuple, list)):
        return type(thing).__name__, tuple(map(_structure, thing))
    if isinstance(thing, dict):
        return "dict", tuple((name, _structure(one)) for name, one in thing.items())
    if isinstance(thing, compat.ClosedJaxpr):
        return "closed", _of_jaxpr(thing.jaxpr), tuple(map(Only, thing.consts))
    if isinstance(thing, compat.Jaxpr):
        return _of_jaxpr(thing)
    if isinstance(thing, compat.WrappedFun):
        return "wrapped", _structure(thing.f), tuple((how, _structure(given)) for how, given in thing.transforms), thing.in_type
    if isinstance(thing, compat.BOOKKEEPING) or type(thing) is object:
        return str(type(thing))
    if isinstance(thing, FunctionType) and thing.__module__.startswith("jax.") and thing.__closure__:
        return "wrapper", thing.__code__, _held(thing)
    try:
        hash(thing)
    except TypeError:
        return Only(thing)
    return Only(thing) if callable(thing) else thing


def _held(wrapper: FunctionType) -> Hashable:
    """What a wrapper of JAX's own closes over; of one that remembers its results, not these."""
    held = [cell.cell_contents for cell in wrapper.__closure__ or ()]
    if wrapper.__qualname__ == compat.REMEMBERS:
        held = [one for one in held if not isinstance(one, dict)]
    return tuple(map(_structure, held))


def _of_jaxpr(jaxpr: Any) -> Structure:
    found = _KNOWN.get(jaxpr)
    if found is None:
        found = _KNOWN[jaxpr] = Structure(_parts(jaxpr))
    return found


def _parts(jaxpr: Any) -> Hashable:
    numbers: dict[Any, int] = {}

    def read(atom: Any) -> Hashable:
        if isinstance(atom, compat.Literal):
            return atom.aval, np.asarray(atom.val).tobytes()
        return numbers.setdefault(atom, len(numbers))

    given = tuple((read(v), v.aval) for v in (*jaxpr.constvars, *jaxpr.invars))
    steps = tuple(
        (
            eqn.primitive,
            comparable(eqn.params),
            eqn.ctx,
            tuple(map(read, eqn.invars)),
            tuple((read(v), v.aval) for v in eqn.outvars),
        )
        for eqn in jaxpr.eqns
    )
    return len(jaxpr.constvars), given, steps, tuple(map(read, jaxpr.outvars)), frozenset(map(str, jaxpr.effects))


# ---------------------------------------------------------------- what reaches what inside loops, branches and calls
#
# With the value, or with the gradient, which a cut stops. A scan is one operation of the run, but not all that goes in reaches
# all that comes out: labels travel through its body until nothing changes.

Labels = frozenset[int]
NONE: Labels = frozenset()


def through(name: str, params: dict[str, Any], given: Sequence[Labels], made: Sequence[Any], *, gradient: bool) -> list[Labels]:
    """The labels of each output of one operation; `made` are its outputs, as far as their avals go."""
    if gradient and name == "stop_gradient":
        return [NONE] * len(made)
    if name == "scan":
        found = _scan(params, given, gradient)
    elif name == "while":
        found = _while(params, given, gradient)
    elif name == "cond":
        branches = [_jaxpr(branch, given[1:], gradient) for branch in params["branches"]]
        chosen = NONE if gradient else given[0]
        found = [chosen.union(*each) for each in zip(*branches, strict=True)]
    elif name in compat.INLINED:
        jaxpr, _ = compat.sub_jaxpr(params)
        found = _body(jaxpr, given, gradient)
    else:
        found = [NONE.union(*given)] * len(made)
    return [NONE if gradient and not _smooth(out) else labels for out, labels in zip(made, found, strict=True)]


def _jaxpr(closed: Any, given: Sequence[Labels], gradient: bool) -> list[Labels]:
    return _body(closed.jaxpr, given, gradient)


def _body(jaxpr: Any, given: Sequence[Labels], gradient: bool) -> list[Labels]:
    env: dict[Any, Labels] = {}
    for var, labels in zip(jaxpr.invars, given, strict=True):
        env[var] = NONE if gradient and not _smooth(var) else labels

    def read(atom: Any) -> Labels:
        return NONE if isinstance(atom, compat.Literal) else env.get(atom, NONE)

    for eqn in jaxpr.eqns:
        found = through(eqn.primitive.name, eqn.params, [read(a) for a in eqn.invars], eqn.outvars, gradient=gradient)
        env.update(zip(eqn.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _scan(params: dict[str, Any], given: Sequence[Labels], gradient: bool) -> list[Labels]:
    first, many = compat.scan_counts(params)
    carry = list(given[first : first + many])
    while True:
        found = _jaxpr(params["jaxpr"], [*given[:first], *carry, *given[first + many :]], gradient)
        again = [old | new for old, new in zip(carry, found[:many], strict=True)]
        if again == carry:
            return [*carry, *found[many:]]
        carry = again


def carried_into(params: dict[str, Any], output: int) -> Labels:
    """The inputs of a scan's body from which one of its results is computed, in the same iteration."""
    many = len(params["jaxpr"].jaxpr.invars)
    return _jaxpr(params["jaxpr"], [frozenset((k,)) for k in range(many)], gradient=False)[output]


def _while(params: dict[str, Any], given: Sequence[Labels], gradient: bool) -> list[Labels]:
    tests, consts = params["cond_nconsts"], params["body_nconsts"]
    carry = list(given[tests + consts :])
    while True:
        decides = NONE if gradient else _jaxpr(params["cond_jaxpr"], [*given[:tests], *carry], gradient)[0]
        found = _jaxpr(params["body_jaxpr"], [*given[tests : tests + consts], *carry], gradient)
        again = [old | new | decides for old, new in zip(carry, found, strict=True)]
        if again == carry:
            return carry
        carry = again


def _smooth(var: Any) -> bool:
    return compat.is_differentiable(var.aval.dtype)


def cuts_inside(params: dict[str, Any]) -> Iterator[Any]:
    """Equations within a loop, a branch or a call at which a gradient stops."""
    for jaxpr in compat.inner_jaxprs(params):
        for eqn in jaxpr.eqns:
            smooth = [a for a in eqn.invars if not isinstance(a, compat.Literal) and _smooth(a)]
            if eqn.primitive.name == "stop_gradient" or (smooth and not any(map(_smooth, eqn.outvars))):
                yield eqn
            yield from cuts_inside(eqn.params)
