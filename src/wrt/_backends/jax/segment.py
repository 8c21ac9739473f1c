"""The stretch between some Values and another one, as a function: plain data first, compiled once, found again.

A `Template` holds no arrays. Two recordings of the same code give equal templates, so the second one compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jax

from wrt._backends.jax import compat
from wrt._backends.jax.later import Heat, Later
from wrt._backends.jax.program import Op, Var
from wrt._backends.jax.seeds import written_out
from wrt._core.index import Shape

Arrays = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Only:
    """A parameter that cannot be compared: equal to itself alone."""

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Only) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


@dataclass(frozen=True, slots=True)
class Step:
    """One operation between numbered arrays."""

    primitive: Any
    params: tuple[tuple[str, Any], ...]
    context: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, arrays: dict[int, Any]) -> None:
        params = {name: given.thing if isinstance(given, Only) else given for name, given in self.params}
        with self.context.manager:
            found = compat.bind(self.primitive, [arrays[k] for k in self.inputs], params)
        arrays.update(zip(self.outputs, found, strict=True))


@dataclass(frozen=True, slots=True)
class Template:
    """y as a function of xs and of everything else it needs; an x that lies behind another x is moved, not replaced."""

    steps: tuple[Step, ...]
    xs: tuple[int, ...]
    behind: tuple[bool, ...]
    others: tuple[int, ...]
    y: int
    avals: tuple[Any, ...]
    """Shapes and types of xs and others: what is worth compiling for some is not yet so for others."""

    def __call__(self, xs: Arrays, others: Arrays, tie: dict[int, Any] | None = None) -> Any:
        arrays = dict(zip(self.others, others, strict=True))
        moved = {k: x for k, x, behind in zip(self.xs, xs, self.behind, strict=True) if behind}
        arrays.update((k, x) for k, x, behind in zip(self.xs, xs, self.behind, strict=True) if not behind)
        for step in self.steps:
            step.run(arrays)
            for k in step.outputs:
                if k in moved:
                    arrays[k] = arrays[k] + moved[k]
                if tie is not None and k in tie:
                    arrays[k] = tied(arrays[k], tie[k])
        return arrays[self.y]


@jax.custom_jvp
def tied(computed: Any, recorded: Any) -> Any:
    """The recorded array, moving as the computed one does: a gradient then refers to the values of the run."""
    return recorded


tied.defjvp(lambda primals, tangents: (primals[1], tangents[0]))


@dataclass(frozen=True, slots=True)
class Segment:
    """A template with the Vars that its numbers stand for."""

    template: Template
    numbers: dict[Var, int]
    others: tuple[Var, ...]

    @classmethod
    def of(cls, ops: Sequence[Op], y: Var, xs: Sequence[Var]) -> Segment:
        numbers: dict[Var, int] = {}

        def number(var: Var) -> int:
            return numbers.setdefault(var, len(numbers))

        at = tuple(number(x) for x in xs)
        steps = tuple(
            Step(
                op.primitive,
                _comparable(op.params),
                op.context,
                tuple(number(v) for v in op.inputs),
                tuple(number(v) for v in op.outputs),
            )
            for op in ops
        )
        made = {v for op in ops for v in op.outputs}
        others = tuple(v for v in numbers if v not in made and v not in xs)
        behind = tuple(x in made for x in xs)
        avals = tuple((v.aval.shape, v.aval.dtype) for v in (*xs, *others))
        return cls(Template(steps, at, behind, tuple(numbers[v] for v in others), number(y), avals), numbers, others)


def _comparable(params: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, given if _hashable(given) else Only(given)) for name, given in params.items())


def _hashable(thing: Any) -> bool:
    try:
        hash(thing)
    except TypeError:
        return False
    return True


class Compiled:
    """The sweeps of a template, compiled when they are asked for again. Nothing loops in Python."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.heat = Heat()

    def _later(self, function: Callable[..., Any], *static: int) -> Later:
        return Later(function, self.heat, static)

    # ---------------------------------------------------------------- pull

    @cached_property
    def linearize(self) -> Later:
        """(xs, others) -> the pull at this point, with what it needs kept."""
        return self._later(lambda xs, others: jax.vjp(lambda *xs: self.template(xs, others), *xs)[1])

    @cached_property
    def pull_one(self) -> Later:
        """(pull, one seed) -> for each x (1, *x.shape), without batching."""
        return self._later(lambda pull, seeds: jax.tree.map(lambda g: g[None], adjoint(pull, seeds[0])))

    @cached_property
    def pull_many(self) -> Later:
        """(pull, seeds) -> for each x (k, *x.shape)."""
        return self._later(lambda pull, seeds: jax.vmap(lambda seed: adjoint(pull, seed))(seeds))

    @cached_property
    def pull_rows(self) -> Later:
        """(pull, positions, y's shape and type) -> the rows of the Jacobian at these elements of y."""
        return self._later(_pull_rows, 2, 3)

    # ---------------------------------------------------------------- push

    @cached_property
    def push(self) -> Later:
        """(xs, others, tangents) -> one tangent of y; only the xs that have a tangent move."""
        return self._later(self._push)

    @cached_property
    def push_many(self) -> Later:
        return self._later(lambda xs, others, tangents: jax.vmap(lambda t: self._push(xs, others, t))(tangents))

    @cached_property
    def push_columns(self) -> Later:
        """(xs, others, which x, positions) -> the columns of the Jacobian at these elements of it."""
        return self._later(self._push_columns, 2)

    def _push_columns(self, xs: Arrays, others: Arrays, k: int, positions: Any) -> Any:
        def column(position: Any) -> Any:
            return self._push(xs, others, {k: written_out(position, xs[k].shape, xs[k].dtype)})

        return jax.vmap(column)(positions)

    def _push(self, xs: Arrays, others: Arrays, tangents: dict[int, Any]) -> Any:
        moving = {k: xs[k] for k in tangents}

        def y(moved: dict[int, Any]) -> Any:
            return self.template([moved.get(k, x) for k, x in enumerate(xs)], others)

        return jax.jvp(y, (moving,), (tangents,))[1]

    @cached_property
    def push_backwards(self) -> Later:
        """The push as the transpose of the pull: for functions that only have a backward rule."""
        return self._later(self._push_backwards)

    def _push_backwards(self, pull: Any, y: Any, tangents: Arrays) -> Any:
        (pushed,) = jax.linear_transpose(lambda u: tuple(pull(u)), y)(tuple(tangents))
        return pushed


@lru_cache(maxsize=512)
def compiled(template: Template) -> Compiled:
    return Compiled(template)


def adjoint(pull: Any, seed: Any) -> Any:
    """The adjoint over the reals: JAX pairs without conjugating, so both ends are conjugated."""
    return jax.tree.map(conjugated, pull(conjugated(seed)))


def _pull_rows(pull: Any, positions: Any, shape: Shape, dtype: Any) -> Any:
    return jax.vmap(lambda position: adjoint(pull, written_out(position, shape, dtype)))(positions)


def conjugated(array: Any) -> Any:
    return jax.numpy.conj(array) if jax.numpy.iscomplexobj(array) else array
