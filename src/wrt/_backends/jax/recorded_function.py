"""The stretch of a run that a question is about, as a function of what the run was given.

The recorded operations lead to y from other numbers of the same shapes too, as long as Python took no decision by numbers
that would be others then. So a plan can run at any point, and inside of `jit`, `vmap` and `grad`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCOO

from wrt._backends.jax import compat, reach
from wrt._backends.jax.engine import JaxEngine
from wrt._backends.jax.program import Op, Var
from wrt._backends.jax.reach import NoRule
from wrt._backends.jax.segment import Segment
from wrt._core.index import Positions
from wrt._core.protocol import Marks
from wrt._core.value import Value
from wrt.errors import EngineRefused, WrongShape

if TYPE_CHECKING:
    from wrt._backends.jax.record import JaxRecord

Array = Any


class JaxRecordedFunction:
    """y with respect to one x, at other points than that of the run."""

    def __init__(self, record: JaxRecord, y: Value, x: Value) -> None:
        self._record = record
        self._engine = record.engine(y, (x,))
        self._went_in, self._structure = jax.tree.flatten((record.inputs, record.keywords))
        self._given: list[Var] = list(dict.fromkeys(v.key for v in self._went_in if isinstance(v, Value)))
        self._moving = _moving(record.program.ops, self._given)
        _refuse_decisions(record, self._moving)
        self.connected = bool(self._engine.live)

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Array]:
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

    def is_traced(self, leaves: Sequence[Array]) -> bool:
        return compat.transforming() or any(isinstance(leaf, compat.Tracer) for leaf in leaves)

    def engine(self, y: Value, xs: Sequence[Value], leaves: Sequence[Array]) -> JaxEngine:
        self._record.count_loops(y, xs)
        given = {var: jnp.asarray(leaf, var.aval.dtype) for var, leaf in zip(self._given, leaves, strict=True)}

        def numbers(segment: Segment) -> list[Array]:
            return [given[var] if var in given else self._fixed(var) for var in segment.leaves]

        return JaxEngine(self._record, y, xs, numbers)

    def _fixed(self, var: Var) -> Array:
        """The number of the run, where it does not depend on what is given."""
        if var in self._moving:
            raise EngineRefused(
                "this run is no function of what it was given",
                "an operation with an effect, such as a print, depends on it and is not run again",
                "record at the other point, t = wrt.trace(f, x), and ask there",
            )
        return self._record.program.value(var)

    def reach(self, rows: Positions) -> Marks | None:
        def fixed(var: Var) -> Any:
            if var in self._moving:
                raise NoRule("an index that depends on what is given")
            return self._record.program.value(var)

        engine = self._engine
        return reach.reach(engine.ops, engine.y.key, engine.xs[0].key, rows, fixed)

    def takes(self, way: Literal["pull", "push"]) -> bool:
        """Whether JAX has a derivative this way for every operation."""
        shapes = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in self._given]
        y, x = self._engine.y, self._engine.xs[0]

        def swept(leaves: Sequence[Array]) -> Any:
            engine = self.engine(y, (x,), leaves)
            if way == "pull":
                return engine.programs.pull_one(engine.linearized, np.zeros((1, *y.shape), y.dtype))
            return engine.programs.push_one(engine.leaves, {0: np.zeros((1, *x.shape), x.dtype)})

        try:
            jax.eval_shape(swept, shapes)
        except Exception:
            return False
        return True

    def compiled(self, answer: Callable[[Sequence[Array]], Any]) -> Callable[[Sequence[Array]], Any]:
        found: Callable[[Sequence[Array]], Any] = jax.jit(answer)
        return found

    def sparse(self, values: Array, rows: Positions, columns: Positions, shape: tuple[int, int]) -> Any:
        places = np.stack([np.asarray(rows), np.asarray(columns)], 1)
        return BCOO((values, places), shape=shape, indices_sorted=True, unique_indices=True)


def _moving(ops: Iterable[Op], given: Iterable[Var]) -> set[Var]:
    """Everything that is computed from what was given."""
    found = set(given)
    for op in ops:
        if not found.isdisjoint(op.inputs):
            found.update(op.outputs)
    return found


def _refuse_decisions(record: JaxRecord, moving: set[Var]) -> None:
    for left in record.recorder.left:
        if left.var in moving:
            raise _another_way("Python looked at a number", left.where)
    for op in record.loops.decided:
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
