"""A program in two halves: what depends on one of two things alone is done once, the rest whenever it is asked for.

A sweep mixes x with seeds. The way from x to y depends on x alone, and the first linear operations that seeds meet on the
seeds alone: only what depends on both has to run again when the same lines are swept again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax

from wrt._backends.jax import compat

Array = Any
CONSTANT, NEITHER, ONE, OTHER = 0, 1, 2, 4
BOTH = ONE | OTHER
"""What an array depends on; NEITHER stands for arguments that are neither, a CONSTANT is written in the program."""

SHAPED = frozenset({"broadcast_in_dim", "expand_dims", "reshape", "squeeze"})
"""What is cheaper to do again than to keep: it only lays numbers out."""

SUMS = frozenset({"add", "add_any"})

MOST = 2**26  # bytes that may be kept between the halves


@dataclass(slots=True, eq=False)
class Made:
    """An array of the program: what it depends on, and the operation that makes it, None for what is given."""

    aval: Any
    depends: int
    op: Operation | None = None


class Operation(NamedTuple):
    equation: Any
    inputs: list[Any]
    """`Made`, or a constant."""
    outputs: list[Made]


class Halves(NamedTuple):
    first: Callable[..., list[Array]]
    """Takes what the program takes; what it gives is kept."""
    second: Callable[[list[Array]], Any]
    """Takes that, and gives what the program gives."""


class InHalves:
    """A function that is compiled in halves, or as a whole once it is `undivided`; `kinds` are those of its arguments."""

    __slots__ = ("_halves", "_jitted", "_kinds", "_looked", "undivided")

    def __init__(self, function: Callable[..., Any], *kinds: int) -> None:
        self._jitted = compat.kept_program(function)
        self._kinds = kinds
        self._looked = False
        self._halves: Halves | None = None
        self.undivided = False

    def bound(self, *given: Any) -> Callable[[], Any]:
        """The program and what it is given, as one call of JAX's own; what depends on one thing alone has been done."""
        if not self._looked and not self.undivided:
            kinds = zip(self._kinds, given, strict=True)
            depends = [kind for kind, argument in kinds for _ in jax.tree.leaves(argument)]
            self._halves, self._looked = halves(self._jitted.trace(*given), depends), True
        if self._halves is None or self.undivided:
            return partial(self._jitted, *given)
        return partial(self._halves.second, self._halves.first(*given))


def halves(traced: Any, depends: Sequence[int]) -> Halves | None:
    """A traced program, each of whose flat arguments is, or depends on, ONE or OTHER; None where it is not worth it."""
    closed = traced.jaxpr
    if closed.effects:
        return None
    given = [Made(v.aval, d) for v, d in zip(closed.jaxpr.invars, depends, strict=True)]
    operations: list[Operation] = []
    results = _laid_out(closed.jaxpr, closed.consts, given, operations)
    operations = _regrouped(operations, results)
    later = [op for op in operations if op.outputs[0].depends & BOTH == BOTH]
    kept, shaped = _between((*(one for op in later for one in op.inputs), *results))
    if sum(math.prod(one.aval.shape) * one.aval.dtype.itemsize for one in kept) > MOST:
        return None
    before = [op for op in operations if op.outputs[0].depends & BOTH != BOTH]

    def first(*arguments: Any) -> list[Array]:
        return _run(before, dict(zip(given, jax.tree.leaves(arguments), strict=True)), kept)

    def second(held: list[Array]) -> Any:
        return jax.tree.unflatten(traced.out_tree, _run([*shaped, *later], dict(zip(kept, held, strict=True)), results))

    return Halves(jax.jit(first), compat.kept_program(second))


def _laid_out(jaxpr: Any, consts: Sequence[Array], given: Sequence[Any], operations: list[Operation]) -> list[Any]:
    """Every operation in order, those inside of calls too; what is returned are the results."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, compat.Literal) else known[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        if equation.primitive.name in compat.INLINED:
            found: Sequence[Any] = _laid_out(*compat.sub_jaxpr(equation.params), inputs, operations)
        else:
            depends = CONSTANT
            for one in inputs:
                depends |= one.depends if isinstance(one, Made) else CONSTANT
            found = [Made(v.aval, depends) for v in equation.outvars]
            operations.append(Operation(equation, inputs, list(found)))
            for one in found:
                one.op = operations[-1]
        known.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _regrouped(operations: list[Operation], results: Sequence[Any]) -> list[Operation]:
    """Sums (a + b) + c of which only a is made in the second half, as a + (b + c)."""
    reads = Counter(one for op in operations for one in op.inputs if isinstance(one, Made))
    reads.update(one for one in results if isinstance(one, Made))
    found: list[Operation] = []
    gone: set[int] = set()
    for op in operations:
        outer = _terms(op)
        inner = None if outer is None or reads[outer.again] > 1 else _terms(outer.again.op)
        if outer is None or inner is None or (outer.once.depends | inner.once.depends) & BOTH == BOTH:
            found.append(op)
            continue
        gone.add(id(outer.again.op))
        total = Made(op.outputs[0].aval, outer.once.depends | inner.once.depends)
        total.op = Operation(op.equation, [inner.once, outer.once], [total])
        op.outputs[0].op = Operation(op.equation, [inner.again, total], op.outputs)
        found += [total.op, op.outputs[0].op]
    return [op for op in found if id(op) not in gone]


class Terms(NamedTuple):
    """Of a sum: what is made again, and what is made once."""

    again: Made
    once: Made


def _terms(op: Operation | None) -> Terms | None:
    if op is None or op.equation.primitive.name not in SUMS or not all(isinstance(one, Made) for one in op.inputs):
        return None
    again = [one for one in op.inputs if one.depends & BOTH == BOTH]
    once = [one for one in op.inputs if one.depends & BOTH != BOTH]
    same = all(one.aval.shape == op.outputs[0].aval.shape for one in op.inputs)
    return Terms(again[0], once[0]) if len(again) == len(once) == 1 and same else None


def _between(read: Iterable[Any]) -> tuple[list[Made], list[Operation]]:
    """What the second half reads of the first, and how it is laid out anew there."""
    kept: dict[Made, None] = {}
    shaped: dict[int, Operation] = {}

    def want(one: Any) -> None:
        if not isinstance(one, Made) or one.depends & BOTH == BOTH or one in kept:
            return
        known = one.depends == CONSTANT  # a compiler does more with numbers that it knows
        if one.op is None or not (known or one.op.equation.primitive.name in SHAPED):
            kept[one] = None
        elif id(one.op) not in shaped:
            for before in one.op.inputs:
                want(before)
            shaped[id(one.op)] = one.op

    for one in read:
        want(one)
    return list(kept), list(shaped.values())


def _run(operations: Sequence[Operation], known: dict[Made, Array], results: Sequence[Any]) -> list[Array]:
    def read(one: Any) -> Array:
        return known[one] if isinstance(one, Made) else one

    for equation, inputs, outputs in operations:
        with equation.ctx.manager:
            found = compat.bind(equation.primitive, [read(one) for one in inputs], equation.params)
        known.update(zip(outputs, found, strict=True))
    return [read(one) for one in results]
