"""Pull and push on a recorded run: the only place where wrt calls `jax.vjp` and `jax.jvp`.

Everything is compiled, from the first question on, and found again by the structure of the stretch it is about: the same
question has the same bits however often it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from wrt._backends.jax import compat, reach
from wrt._backends.jax.arrays import OneHot, native, on_cpu, written_out
from wrt._backends.jax.program import between
from wrt._backends.jax.segment import Segment, Template
from wrt._backends.jax.thresholds import COLUMNS_PER_CALL, KEPT_PROGRAMS, PUSH_COST_IN_PULLS, TRANSPOSED_COST_IN_PULLS
from wrt._core.finding import first_line
from wrt._core.index import Positions
from wrt._core.protocol import CannotSweep, Marks, Swept
from wrt._core.value import Value
from wrt.errors import EngineRefused, WrtError

if TYPE_CHECKING:
    from wrt._backends.jax.record import JaxRecord

Array = Any
Arrays = Sequence[Any]

VMAP = "vmap"
ONE_BY_ONE = "one by one"
COLUMNS = "forward mode, column by column"
TRANSPOSED = "transposed pull"


class JaxEngine:
    """The derivative of one Value with respect to others; what a pull needs is kept from the first one on.

    `leaves` tells the numbers from which the run is computed: those it was given, or others.
    """

    can_pull: bool
    can_push: bool = True
    push_cost: float

    def __init__(
        self, record: JaxRecord, y: Value, xs: Sequence[Value], leaves: Callable[[Segment], Arrays] | None = None
    ) -> None:
        self.record, self.y, self.xs = record, y, xs
        self.ops, reached = between(y.key, [x.key for x in xs])
        self.live = [k for k, there in enumerate(reached) if there]
        self.segment = Segment.of(y.key, [xs[k].key for k in self.live], self.ops)
        self.programs = programs(self.segment.template)
        self.can_pull = not any(holds(op.name, op.params, compat.OPEN_LOOPS) for op in self.ops)
        self._backward_only = any(holds(op.name, op.params, compat.BACKWARD_ONLY) for op in self.ops)
        looped = PUSH_COST_IN_PULLS if not on_cpu() and any(op.name == "scan" for op in self.ops) else 1.0
        self.push_cost = TRANSPOSED_COST_IN_PULLS if self._backward_only else looped
        self._leaves_of = leaves

    @cached_property
    def leaves(self) -> Arrays:
        if self._leaves_of is not None:
            return self._leaves_of(self.segment)
        return [self.record.program.value(var) for var in self.segment.leaves]

    # ---------------------------------------------------------------- pull

    def plain(self, seed: Array, *, then_push: bool = False) -> list[Array | None]:
        if not self.live:
            return [None] * len(self.xs)
        with in_our_words():
            if self.can_pull:
                return self._placed(self.programs.pull_one(self.linearized, seed))
            return self._placed(self.programs.columns_one(self.leaves, seed))

    def pull(self, seeds: Array, *, batched: bool = True) -> Swept:
        count = seeds.shape[0]
        if not self.live:
            return Swept([None] * len(self.xs), ONE_BY_ONE, 0)
        if count == 1:
            return Swept(self.plain(seeds), ONE_BY_ONE if self.can_pull else COLUMNS)
        refused: tuple[str, ...] = ()
        if batched:
            self._prepare()  # what is refused here is no matter of batches
            try:
                if self.can_pull:
                    return Swept(self._placed(self.programs.pull_many(self.linearized, seeds)), VMAP)
                return Swept(self._placed(self.programs.columns_many(self.leaves, seeds)), COLUMNS)
            except Exception as error:
                refused = (f"{VMAP}: {first_line(error)}",)
        if self.can_pull and compat.transforming():  # part of a program: a loop in it, not a copy for every row
            return Swept(self._placed(self.programs.pull_in_turn(self.linearized, seeds)), ONE_BY_ONE, count, refused)
        rows = [self.plain(seed) for seed in _one_by_one(seeds)]
        columns = [None if column[0] is None else self._concat(column) for column in zip(*rows, strict=True)]
        return Swept(columns, ONE_BY_ONE if self.can_pull else COLUMNS, count, refused)

    def _concat(self, arrays: Sequence[Array]) -> Array:
        return self.record.backend.arrays.concat(arrays, 0)

    def _prepare(self) -> None:
        with in_our_words():
            _ = self.linearized if self.can_pull else self.leaves

    @cached_property
    def linearized(self) -> Any:
        """What every pull needs: one forward pass, whose numbers all pulls share."""
        return self.programs.linearize(self.leaves)

    def _placed(self, found: Arrays) -> list[Array | None]:
        result: list[Array | None] = [None] * len(self.xs)
        for k, array in zip(self.live, found, strict=True):
            result[k] = array
        return result

    # ---------------------------------------------------------------- push

    def push(self, tangents: Sequence[Array | None], *, batched: bool = True) -> Swept:
        given = {place: tangents[k] for place, k in enumerate(self.live) if tangents[k] is not None}
        if not given:
            return Swept([None], ONE_BY_ONE, 0)
        count = next(iter(given.values())).shape[0]  # type: ignore[union-attr]
        refused: list[str] = []
        for method, calls, run in self._ways_to_push(given, count, batched=batched and count > 1):
            try:
                return Swept([run()], method, calls, tuple(refused))
            except Exception as error:
                refused.append(f"{method}: {first_line(error)}")
        raise CannotSweep(refused[-1])

    def _ways_to_push(
        self, given: dict[int, Array], count: int, *, batched: bool
    ) -> Iterator[tuple[str, int, Callable[[], Array]]]:
        """From the best one on: a method, its calls of the engine, and what runs it."""
        if not self._backward_only:
            if batched:
                yield VMAP, 1, lambda: self.programs.push_many(self.leaves, given)
            yield ONE_BY_ONE, count, lambda: self._each(lambda one: self.programs.push_one(self.leaves, one), given)
        if self.can_pull:
            if batched:
                yield f"{TRANSPOSED}, {VMAP}", 1, lambda: self.programs.push_transposed_many(self.linearized, given)
            yield TRANSPOSED, count, lambda: self._each(lambda one: self.programs.push_transposed(self.linearized, one), given)

    def _each(self, push: Callable[[dict[int, Array]], Array], given: dict[int, Array]) -> Array:
        """One tangent after another."""
        rows = zip(*map(_one_by_one, given.values()), strict=True)
        return self._concat([push(dict(zip(given, row, strict=True))) for row in rows])

    # ---------------------------------------------------------------- more of the run

    def pull_traceable(self, seeds: Array, by: Sequence[Value]) -> list[Value | None]:
        """The pull as further operations of the same run, in terms of the values that the run had."""
        if not self.live:
            return [None] * len(self.xs)
        record, recorder = self.record, self.record.recorder
        keys = [self.xs[k].key for k in self.live]
        made = {v for op in self.ops for v in op.outputs}
        xs: list[Any] = [np.zeros(key.aval.shape, key.aval.dtype) if key in made else recorder.wrap(key) for key in keys]

        def y(*moved: Any) -> Any:
            known = {key: x for key, x in zip(keys, moved, strict=True) if key not in made}
            for op in self.ops:
                found = op.apply([known.get(v, recorder.wrap(v)) for v in op.inputs])
                for var, array in zip(op.outputs, found, strict=True):
                    known[var] = as_recorded(array, recorder.wrap(var)) if var.differentiable else array
                    if var in keys:
                        known[var] = known[var] + moved[keys.index(var)]
            return known[self.y.key]

        with in_our_words(), compat.set_current_trace(recorder):
            _, pull = jax.vjp(y, *xs)
            columns = jax.vmap(lambda seed: adjoint(pull, seed))(native(seeds))
        return self._placed([record.value_of(recorder.var_of(column)) for column in columns])

    def reach(self, rows: Positions, *, certain: bool = False) -> Marks | None:
        """Of a function with a derivative of the user's own only this one could be `certain`."""
        if len(self.live) != 1 or len(self.xs) != 1 or (certain and not reach.knows_all(self.ops)):
            return None
        return reach.reach(self.ops, self.y.key, self.xs[0].key, rows, self.record.program.value)


def _one_by_one(seeds: Array) -> list[Array]:
    """Batches of one."""
    if isinstance(seeds, OneHot):
        return [OneHot(seeds.positions[k : k + 1], seeds.inner, seeds.dtype) for k in range(len(seeds.positions))]
    return [seeds[k : k + 1] for k in range(seeds.shape[0])]


# ---------------------------------------------------------------- compiled


class Programs:
    """The sweeps of a template, compiled when they are first needed. Nothing loops in Python."""

    def __init__(self, template: Template) -> None:
        self.template = template

    @cached_property
    def linearize(self) -> Any:
        """leaves -> the pull at this point, with what it needs kept."""

        def program(leaves: Arrays) -> Any:
            xs, known = self.template.start(leaves)
            return jax.vjp(lambda *xs: self.template.finish(xs, known), *xs)[1]

        return jax.jit(program)

    @cached_property
    def pull_one(self) -> Any:
        """(pull, one seed) -> for each x (1, *x.shape), without batching."""
        return jax.jit(lambda pull, seed: [one[None] for one in adjoint(pull, written_out(_first(seed)))])

    @cached_property
    def pull_many(self) -> Any:
        """(pull, seeds) -> for each x (k, *x.shape)."""
        return jax.jit(lambda pull, seeds: jax.vmap(lambda seed: adjoint(pull, written_out(seed)))(seeds))

    @cached_property
    def pull_in_turn(self) -> Any:
        """The same, one after another, without batching."""
        return jax.jit(lambda pull, seeds: jax.lax.map(lambda seed: adjoint(pull, written_out(seed)), seeds))

    @cached_property
    def push_one(self) -> Any:
        """(leaves, {which x: one tangent}) -> (1, *y.shape); only the xs that have a tangent move."""
        return jax.jit(lambda leaves, tangents: self._push(leaves, {k: _first(one) for k, one in tangents.items()})[None])

    @cached_property
    def push_many(self) -> Any:
        """(leaves, {which x: tangents}) -> (k, *y.shape)."""
        return jax.jit(lambda leaves, tangents: jax.vmap(lambda one: self._push(leaves, one))(tangents))

    def _push(self, leaves: Arrays, tangents: dict[int, Any]) -> Any:
        xs, known = self.template.start(leaves)
        moving = {k: xs[k] for k in tangents}

        def y(moved: dict[int, Any]) -> Any:
            return self.template.finish([moved.get(k, x) for k, x in enumerate(xs)], known)

        return jax.jvp(y, (moving,), ({k: written_out(one) for k, one in tangents.items()},))[1]

    @cached_property
    def push_transposed(self) -> Any:
        """(pull, {which x: one tangent}) -> (1, *y.shape), by the transpose of the pull: where there is only a backward rule."""
        return jax.jit(lambda pull, tangents: self._transposed(pull, {k: _first(one) for k, one in tangents.items()})[None])

    @cached_property
    def push_transposed_many(self) -> Any:
        return jax.jit(lambda pull, tangents: jax.vmap(lambda one: self._transposed(pull, one))(tangents))

    def _transposed(self, pull: Any, tangents: dict[int, Any]) -> Any:
        ends = self.template.avals[: len(self.template.xs)]
        given = tuple(
            written_out(tangents[k]) if k in tangents else jnp.zeros(shape, dtype) for k, (shape, dtype) in enumerate(ends)
        )
        y = jax.ShapeDtypeStruct(*self.template.aval_of_y)
        return jax.linear_transpose(lambda u: tuple(pull(u)), y)(given)[0]

    @cached_property
    def columns_one(self) -> Any:
        """(leaves, one seed) -> for each x (1, *x.shape), from the columns of J one after another, without batching.

        For a loop whose length is decided while it runs, which has no backward pass.
        """
        return jax.jit(lambda leaves, seed: self._from_columns(leaves, written_out(_first(seed))[None], None))

    @cached_property
    def columns_many(self) -> Any:
        """The same for many seeds, many columns at a time."""
        return jax.jit(lambda leaves, seeds: self._from_columns(leaves, jax.vmap(written_out)(seeds), COLUMNS_PER_CALL))

    def _from_columns(self, leaves: Arrays, seeds: Array, together: int | None) -> list[Array]:
        """u @ J, (k, n) for each x, from the columns of J."""
        bars = jnp.conj(seeds.reshape(seeds.shape[0], -1))
        found = []
        for k, (shape, dtype) in enumerate(self.template.avals[: len(self.template.xs)]):

            def rows(unit: complex, k: int = k, shape: Any = shape, dtype: Any = dtype) -> Array:
                def of(position: Array) -> Array:
                    tangent = written_out(OneHot(position, shape, dtype)) * jnp.asarray(unit, dtype)
                    column = self._push(leaves, {k: tangent}).reshape(-1)
                    return jnp.matmul(bars, column, precision=jax.lax.Precision.HIGHEST).real

                return jax.lax.map(of, jnp.arange(int(np.prod(shape))), batch_size=together).T

            whole = rows(1.0)
            if jnp.issubdtype(dtype, jnp.complexfloating):
                whole = jax.lax.complex(whole, rows(1j))
            found.append(whole.astype(dtype).reshape(seeds.shape[0], *shape))
        return found


@lru_cache(maxsize=KEPT_PROGRAMS)
def programs(template: Template) -> Programs:
    return Programs(template)


def adjoint(pull: Any, seed: Any) -> Any:
    """The adjoint over the reals: JAX pairs without conjugating, so both ends are conjugated."""
    return jax.tree.map(_conjugate, pull(_conjugate(seed)))


def _conjugate(array: Any) -> Any:
    return jnp.conj(array) if jnp.iscomplexobj(array) else array


def _first(seeds: Any) -> Any:
    """The only seed of a batch of one, inside a program."""
    return jax.tree.map(lambda one: one[0], seeds)


@jax.custom_jvp
def as_recorded(computed: Any, recorded: Any) -> Any:
    """The recorded array, moving as the computed one does: a gradient then refers to the values of the run."""
    return recorded


as_recorded.defjvp(lambda primals, tangents: (primals[1], tangents[0]))


# ---------------------------------------------------------------- what JAX refuses


def holds(name: str, params: dict[str, Any], wanted: frozenset[str]) -> bool:
    """Whether an operation is, or contains at any depth, one of these; inside of a derivative of the user's own none counts."""
    if name in wanted:
        return True
    if name.startswith("custom_"):
        return False
    return any(holds(eqn.primitive.name, eqn.params, wanted) for jaxpr in compat.inner_jaxprs(params) for eqn in jaxpr.eqns)


@contextmanager
def in_our_words() -> Iterator[None]:
    """Around a plain pass of JAX."""
    try:
        yield
    except WrtError:
        raise
    except Exception as error:
        raise EngineRefused(
            "JAX could not run this pass",
            first_line(error),
            "the original error is chained below; ask around the operation it names, from its output or to its input",
        ) from error
