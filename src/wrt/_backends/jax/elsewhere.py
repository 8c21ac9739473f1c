"""The stretch of a run that a question is about, as a function of what the run was given.

The recorded operations lead to y from other numbers of the same shapes too, as long as Python took no decision by numbers
that would be others then. So lines can be swept at any point, and inside of `jit`, `vmap` and `grad`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCOO

from wrt._backends.jax import compat, reach
from wrt._backends.jax.kinds import Marks, NoRule
from wrt._backends.jax.narrowed import times
from wrt._backends.jax.program import Op, Var, ancestors
from wrt._backends.jax.segment import adjoint
from wrt._backends.jax.together import picked, upright
from wrt._core.flow import Flow
from wrt._core.index import Positions
from wrt._core.lines import Lines, Weights
from wrt._core.pattern import Way
from wrt._core.value import Value
from wrt.errors import EngineRefused, WrongShape

if TYPE_CHECKING:
    from wrt._backends.jax.record import JaxRecord

Array = Any
Factors = tuple[Array, Array]
"""y by an array of a waist, and that by x, each in the shape of both."""
WRITTEN_OUT = 2**18  # numbers in the seeds of a program


class Elsewhere:
    """y with respect to one x, at other points than that of the run."""

    def __init__(self, record: JaxRecord, y: Value, x: Value) -> None:
        self._linear = record.linear(y, (x,))
        self._value = record.program.value
        self._went_in, self._structure = jax.tree.flatten((record.inputs, record.keywords))
        self._given: list[Var] = list(dict.fromkeys(v.key for v in self._went_in if isinstance(v, Value)))
        self._moving = _moving(record.program.ops, self._given)
        _refuse_decisions(record, self._moving)
        wanted = (x.key, *self._linear.segment.others)
        self._before = [op for op in _leading_to(wanted) if not self._moving.isdisjoint(op.outputs)]
        self.connected = bool(self._linear.live)
        self.operations = len(self._linear.ops)
        self.batches_hold = reach.batches_hold(self._linear.ops)

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Array]:
        """The arrays that were given, in the order of those of the run; refused where they are not like those."""
        found, structure = jax.tree.flatten((list(args), kwargs))
        if structure != self._structure:
            raise _unlike(f"{structure.num_leaves} leaves in other containers than the {self._structure.num_leaves} of the run")
        taken: dict[Var, Array] = {}
        for leaf, before in zip(found, self._went_in, strict=True):
            if not isinstance(before, Value):
                if leaf is not before and leaf != before:
                    raise _unlike(f"{leaf!r} where the run had {before!r}, which is part of its program")
                continue
            aval = before.key.aval
            if np.shape(leaf) != aval.shape or not (isinstance(leaf, float) or leaf.dtype == aval.dtype):
                raise _unlike(f"{compat.aval_of(leaf).str_short()} where the run had {aval.str_short()}")
            if taken.setdefault(before.key, leaf) is not leaf:
                raise _unlike("two arrays where the run had one array twice")
        return list(taken.values())

    @staticmethod
    def followed(leaves: Iterable[Array]) -> bool:
        """Whether this is itself being transformed: there are no numbers to look at."""
        return compat.transforming() or any(isinstance(leaf, compat.Tracer) for leaf in leaves)

    def reach(self, rows: Positions) -> Marks | None:
        """(rows, n): where these rows can be nonzero, at whatever point; None where not every operation tells."""

        def fixed(var: Var) -> Any:
            if var in self._moving:
                raise NoRule("an index that depends on what is given")
            return self._value(var)

        return reach.reach(self._linear.ops, self._linear.y.key, self._linear.xs[0].key, rows, fixed)

    def takes(self, way: Way) -> bool:
        """Whether JAX has a derivative this way for every operation."""
        along = self._along(way)
        given = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in self._given]
        try:
            jax.eval_shape(partial(self._swept, way, np.zeros((1, *along.shape), along.dtype)), given)
        except Exception:
            return False
        return True

    @property
    def flow(self) -> Flow | None:
        """What lies between x and y, at whatever point."""
        return self._linear.flow

    @staticmethod
    def compiled(answer: Callable[[Sequence[Array]], Any]) -> Callable[[Sequence[Array]], Any]:
        return jax.jit(answer)

    @staticmethod
    def places(rows: Positions, columns: Positions) -> Array:
        """Where entries stand, as JAX's sparse arrays take it, sent once."""
        with compat.outside():
            return jnp.stack([jnp.asarray(rows), jnp.asarray(columns)], 1)

    @staticmethod
    def sparse(values: Array, places: Array, shape: tuple[int, int]) -> BCOO:
        found: BCOO = jax.tree.unflatten(_sparse(shape), (values, places))
        return found

    def answer(self, lines: Lines, dense: bool, leaves: Sequence[Array]) -> Array:
        """All of it, or its owned entries one after the other."""
        return _read(lines, dense, self._swept(lines.way, self._seeds(lines), leaves))

    def proven(self, lines: Lines, dense: bool, leaves: Sequence[Array]) -> tuple[Array, Array]:
        """The same; and how far the probe is off, how large what it sums up is, and the largest number that nobody owns."""
        along = self._along(lines.way)
        probe = jnp.asarray(lines.probe, along.dtype).reshape(1, *along.shape)
        if self.batches_hold:
            swept = self._swept(lines.way, jnp.concatenate([self._seeds(lines), probe]), leaves)
            swept, said = swept[:-1], swept[-1]
        else:
            swept = self._swept(lines.way, self._seeds(lines), leaves)
            said = self._swept(lines.way, probe, leaves, batched=False)[0]
        weights = lines.weights.astype(swept.dtype)
        weighted = weights * swept
        off = abs(weighted.sum(0) - said)
        size = jnp.maximum(abs(weighted).sum(0), abs(said))
        stray = jnp.where(weights == 0, abs(swept), 0).max(0)
        return _read(lines, dense, swept), jnp.stack([off, size, stray]).max(1)

    def product(self, factors: Sequence[Factors]) -> Array:
        """J2 @ J1, or the sum of several such, in the shape of y and x."""
        found = sum(times(last, first) for last, first in self._flat(factors))
        return jnp.reshape(found, (*self._linear.y.shape, *self._linear.xs[0].shape))

    def held(self, factors: Sequence[Factors], way: Way, weights: Weights, leaves: Sequence[Array]) -> Array:
        """How far a probe of such a product is off, and how large what it sums up is; there is no number nobody owns."""
        along = self._along(way)
        probe = jnp.asarray(weights, along.dtype)
        said = self._swept(way, probe.reshape(1, *along.shape), leaves, batched=False)[0]
        got = sum(_probed(last, first, probe, way) for last, first in self._flat(factors))
        size = sum(_probed(abs(last), abs(first), abs(probe), way) for last, first in self._flat(factors))
        largest = jnp.maximum(jnp.max(size), abs(said).max())
        return jnp.stack([abs(got - said).max(), largest, jnp.zeros_like(largest)])

    def _flat(self, factors: Sequence[Factors]) -> list[Factors]:
        """(m, k) and (k, n)."""
        m, n = self._linear.y.size, self._linear.xs[0].size
        return [(last.reshape(m, -1), first.reshape(-1, n)) for last, first in factors]

    def _along(self, way: Way) -> Value:
        return self._linear.y if way == "pull" else self._linear.xs[0]

    def _seeds(self, lines: Lines) -> Array:
        """Few are written into the program; many are made there, or they could be as large as the answer."""
        along = self._along(lines.way)
        few = len(lines.labels) * len(lines.wanted) <= WRITTEN_OUT
        labels = lines.labels if few else jnp.asarray(lines.labels)
        ones = labels[None] == lines.wanted[:, None]
        return ones.astype(along.dtype).reshape(-1, *along.shape)

    def _swept(self, way: Way, seeds: Array, leaves: Sequence[Array], *, batched: bool = True) -> Array:
        """(lines, width)."""
        x, others = self._numbers(leaves)
        y = partial(self._linear.segment.template, others=others)
        pull = jax.vjp(lambda x: y([x]), x)[1] if way == "pull" else None

        def line(seed: Array) -> Array:
            found = adjoint(pull, seed)[0] if pull is not None else jax.jvp(lambda x: y([x]), (x,), (seed,))[1]
            return found.astype(x.dtype).reshape(-1)

        return jax.vmap(line)(seeds) if batched else line(seeds[0])[None]

    def _numbers(self, leaves: Sequence[Array]) -> tuple[Array, list[Array]]:
        """x, and everything else that its way to y needs, from what was given."""
        given = zip(self._given, leaves, strict=True)
        arrays: dict[Var, Array] = {var: jnp.asarray(leaf, var.aval.dtype) for var, leaf in given}

        def of(var: Var) -> Array:
            return arrays[var] if var in self._moving else self._value(var)

        for op in self._before:
            arrays.update(zip(op.outputs, op.apply([of(v) for v in op.inputs]), strict=True))
        return of(self._linear.xs[0].key), [of(v) for v in self._linear.segment.others]


@lru_cache(maxsize=256)
def _sparse(shape: tuple[int, int]) -> Any:
    """What JAX's sparse arrays are besides numbers and places: made anew, one looks through both, which takes longer than
    many an answer."""
    blank = np.zeros(0, np.float32), np.zeros((0, 2), np.int32)
    with compat.outside():
        return jax.tree.structure(BCOO(blank, shape=shape, indices_sorted=True, unique_indices=True))


def _read(lines: Lines, dense: bool, swept: Array) -> Array:
    if lines.entries is not None:
        return picked(swept, lines.entries, lines.shape if dense else None)
    kept = swept if lines.across is None else swept[:, lines.across]
    return (kept if lines.way == "pull" else upright(kept)).reshape(lines.shape)


def _probed(last: Array, first: Array, probe: Array, way: Way) -> Array:
    return times(times(probe, last), first) if way == "pull" else times(last, times(first, probe))


def _moving(ops: Iterable[Op], given: Iterable[Var]) -> set[Var]:
    """Everything that is computed from what was given."""
    found = set(given)
    for op in ops:
        if not found.isdisjoint(op.inputs):
            found.update(op.outputs)
    return found


def _leading_to(wanted: Iterable[Var]) -> list[Op]:
    ops = {id(op): op for var in wanted for op in ancestors(var)}
    return sorted(ops.values(), key=lambda op: op.number)


def _refuse_decisions(record: JaxRecord, moving: set[Var]) -> None:
    for left in record.recorder.left:
        if left.var in moving:
            raise _another_way("Python looked at a number", left.where)
    for op in record.inside.decided:
        if not moving.isdisjoint(op.inputs):
            raise _another_way(f"a `{op.name}` was laid open as it ran", op.where)
    if not moving.isdisjoint(record.recorder.closed_over):
        raise EngineRefused(
            "an array was given to f, and f closes over it as well",
            "in the recording the two are one array; at another point only one of them would change",
            "let f use its argument alone, and record it again",
        )


def _another_way(what: str, where: Any) -> EngineRefused:
    return EngineRefused(
        "this run is no function of what it was given",
        f"{what}{f' at {where}' if where else ''}: other numbers may go another way",
        "record at the other point, t = wrt.trace(f, x), and ask there",
    )


def _unlike(what: str) -> WrongShape:
    return WrongShape(
        "these arguments are not like those that were recorded",
        f"there is {what}",
        "call it with all arguments of the recorded function, in the same shapes and types, or record anew",
    )
