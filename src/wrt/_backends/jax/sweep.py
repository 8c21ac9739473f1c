"""Pull and push on a recorded run: the only place where wrt calls `jax.vjp` and `jax.jvp` (through `segment.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import numpy.typing as npt

from wrt._backends.jax import compat, reach, segment, waists
from wrt._backends.jax.block import Blocks, Row
from wrt._backends.jax.kinds import Marks
from wrt._backends.jax.narrowed import through
from wrt._backends.jax.program import Op, between
from wrt._backends.jax.refusals import first_line, forward_only, in_our_words
from wrt._backends.jax.seeds import OneHot, native, on_cpu
from wrt._backends.jax.together import Together, together
from wrt._core.flow import Flow
from wrt._core.index import Positions
from wrt._core.pattern import Way
from wrt._core.protocol import CannotBatch
from wrt._core.value import Value

if TYPE_CHECKING:
    from wrt._backends.jax.record import JaxRecord

Array = Any

VMAP = "vmap"
ONE_BY_ONE = "one by one"
COLUMNS = "forward mode, column by column"
TRANSPOSED = "transposed pull"
CHUNK = 128
LOOP_PUSH_COST = 0.8  # on a device: a pull runs a loop twice, forward, keeping every step, and back
PUSH_COST = 0.75  # next to a pull: what moves numbers forward is read in place, backward it is padded and added up


class JaxLinear:
    """The derivative of one Value with respect to others; what a pull needs is kept from the first one on."""

    push_cost = PUSH_COST

    def __init__(self, record: JaxRecord, y: Value, xs: Sequence[Value]) -> None:
        self.record = record
        self.y = y
        self.xs = xs
        ops, self.reached = between(y.key, [x.key for x in xs])
        self.ops: list[Op] = ops
        self.live = [k for k, reached in enumerate(self.reached) if reached]
        self.segment = segment.Segment.of(ops, y.key, [xs[k].key for k in self.live])
        self.compiled = segment.compiled(self.segment.template)
        self.block = Blocks(self)
        self.direct_push_cost = 1.0 if on_cpu() or all(op.name != "scan" for op in ops) else LOOP_PUSH_COST
        self._pull: Any = None
        self._probed: tuple[Array, list[Array]] | None = None
        self._arrays: tuple[list[Array], list[Array]] | None = None
        backwards = not forward_only(ops)
        self.pull_rungs: tuple[str, ...] = (VMAP, ONE_BY_ONE) if backwards else (COLUMNS,)
        self.push_rungs: tuple[str, ...] = (VMAP, ONE_BY_ONE, TRANSPOSED) if backwards else (VMAP, ONE_BY_ONE)

    # ---------------------------------------------------------------- pull

    def pull(self, seeds: Array, rung: str) -> list[Array | None]:
        if not self.live:
            return [None] * len(self.xs)
        if rung == COLUMNS:
            return self._placed(self._pull_columns(seeds))
        backwards = self.linearized()
        if seeds.shape[0] == 1:
            return self._placed(self._plain(backwards, native(seeds)))
        if rung == VMAP:
            try:
                return self._placed(self._batched(backwards, seeds))
            except Exception as error:
                raise CannotBatch(first_line(error)) from error
        with in_our_words():
            rows = [self.compiled.pull_one(backwards, seed[None]) for seed in native(seeds)]
        return self._placed([jax.numpy.concatenate(column) for column in zip(*rows, strict=True)])

    def _batched(self, backwards: Any, seeds: Array) -> list[Array]:
        if isinstance(seeds, OneHot):
            return list(self.compiled.pull_rows(backwards, seeds.positions, seeds.inner, seeds.dtype))
        return list(self.compiled.pull_many(backwards, seeds))

    def _plain(self, backwards: Any, seed: Array) -> list[Array]:
        """One unbatched pull. The point is fixed, so the probe of a question that is asked again need not run again."""
        probe = np.asarray(seed) if on_cpu() else None
        if probe is not None and self._probed is not None and np.array_equal(self._probed[0], probe):
            return self._probed[1]
        with in_our_words():
            found = list(self.compiled.pull_one(backwards, seed))
        if probe is not None:
            self._probed = probe.copy(), found
        return found

    def row(self) -> Row | None:
        """One row of a single x after another; None where no path leads there, or no backward pass exists."""
        if not self.live or self.pull_rungs == (COLUMNS,):
            return None
        with in_our_words():
            return Row(self)

    def reach(self, rows: Positions, *, certain: bool = False) -> Marks | None:
        """(rows, n): where these rows of a single x can be nonzero; None where not every operation tells.

        Of a function with a derivative of the user's own only this one could be `certain`.
        """
        if len(self.live) != 1 or len(self.xs) != 1 or (certain and not reach.batches_hold(self.ops)):
            return None
        return reach.reach(self.ops, self.y.key, self.xs[0].key, rows, self.record.program.value)

    def passes(self, color: Positions, probes: dict[Way, npt.NDArray[np.float64]], way: Way) -> Together | None:
        """Lines of one color swept together, and a probe, as one program; see `together.py`."""
        return together(self, color, probes, way)

    @cached_property
    def flow(self) -> Flow | None:
        """The arrays on the way, where the Jacobian may be full; see `waists.py`."""
        return waists.flow(self)

    def narrowing(self, way: Way) -> Flow | None:
        """The same where all rows or columns would be compiled, swept this way."""
        return self.flow if self.block.settles(way, self.y.size) else None

    def through(self, waist: Value) -> Callable[[], Array]:
        """The program that makes all of it as one product through a waist; see `narrowed.py`."""
        return through(self, waist)

    def linearized(self) -> Any:
        if self._pull is None:
            with in_our_words(), self.record.outside():
                self._pull = self.compiled.linearize(*self.numbers())
        return self._pull

    def numbers(self) -> tuple[list[Array], list[Array]]:
        """The values of xs and of everything else the segment reads; an x behind another one starts from no move."""
        if self._arrays is None:
            template = self.segment.template
            xs = [
                np.zeros(self.xs[k].shape, self.xs[k].dtype) if behind else self.record.program.value(self.xs[k].key)
                for k, behind in zip(self.live, template.behind, strict=True)
            ]
            self._arrays = xs, [self.record.program.value(v) for v in self.segment.others]
        return self._arrays

    def _placed(self, found: Sequence[Array]) -> list[Array | None]:
        result: list[Array | None] = [None] * len(self.xs)
        for k, array in zip(self.live, found, strict=True):
            result[k] = array
        return result

    def _pull_columns(self, seeds: Array) -> list[Array]:
        """u @ J from the columns of J, where no backward pass exists: a loop whose length is decided while it runs."""
        count = seeds.shape[0]
        bars = jax.numpy.conj(native(seeds).reshape(count, -1))
        pulled = []
        for k in self.live:
            x = self.xs[k]
            found = (bars @ self._all_columns(k, 1)).real  # (count, n)
            if jax.numpy.issubdtype(x.dtype, jax.numpy.complexfloating):
                found = jax.lax.complex(found, (bars @ self._all_columns(k, 1j)).real)
            pulled.append(found.astype(x.dtype).reshape(count, *x.shape))
        return pulled

    def _all_columns(self, k: int, direction: complex) -> Array:
        """The Jacobian of one x, (m, n), some columns at a time."""
        x = self.xs[k]
        pushed = []
        for start in range(0, x.size, CHUNK):
            chosen = np.arange(start, min(start + CHUNK, x.size))
            tangents = native(self.record.backend.arrays.one_hot(x, chosen)) * np.asarray(direction).astype(x.dtype)
            columns = self.push([tangents if j == k else None for j in range(len(self.xs))], VMAP)
            pushed.append(columns.reshape(len(chosen), -1))  # type: ignore[union-attr]
        return jax.numpy.concatenate(pushed).T

    # ---------------------------------------------------------------- push

    def push(self, tangents: Sequence[Array | None], rung: str) -> Array | None:
        given: dict[int, Array] = {}
        for place, k in enumerate(self.live):
            tangent = tangents[k]
            if tangent is not None:
                given[place] = tangent
        if not given:
            return None
        count = next(iter(given.values())).shape[0]
        try:
            if rung == TRANSPOSED:
                return self._push_transposed({k: native(t) for k, t in given.items()}, count)
            if count == 1:
                return self.compiled.push(*self.numbers(), {k: native(t)[0] for k, t in given.items()})[None]
            if rung == VMAP and len(given) == 1 and isinstance(first := given[next(iter(given))], OneHot):
                return self.compiled.push_columns(*self.numbers(), next(iter(given)), first.positions)
            given = {k: native(t) for k, t in given.items()}
            if rung == VMAP:
                return self.compiled.push_many(*self.numbers(), given)
            each = [{k: t[j] for k, t in given.items()} for j in range(count)]
            return jax.numpy.stack([self.compiled.push(*self.numbers(), one) for one in each])
        except Exception as error:
            raise CannotBatch(first_line(error)) from error

    def _push_transposed(self, given: dict[int, Array], count: int) -> Array:
        backwards = self.linearized()
        like = np.zeros(self.y.shape, self.y.dtype)
        zeros = [np.zeros(self.xs[k].shape, self.xs[k].dtype) for k in self.live]
        pushed = [
            self.compiled.push_backwards(backwards, like, [given[k][j] if k in given else zeros[k] for k in range(len(zeros))])
            for j in range(count)
        ]
        return jax.numpy.stack(pushed)

    # ---------------------------------------------------------------- again

    def pull_traceable(self, seeds: Array, by: Sequence[Value]) -> list[Value | None]:
        """The pull as further operations of the same run, in terms of the values that the run had."""
        if not self.live:
            return [None] * len(self.xs)
        record = self.record
        template, numbers = self.segment.template, self.segment.numbers
        recorder = record.recorder
        others = [recorder.wrap(v) for v in self.segment.others]
        made = {numbers[v]: recorder.wrap(v) for op in self.ops for v in op.outputs if v.differentiable}
        xs: list[Any] = [
            np.zeros(self.xs[k].shape, self.xs[k].dtype) if behind else recorder.wrap(self.xs[k].key)
            for k, behind in zip(self.live, template.behind, strict=True)
        ]
        with in_our_words(), compat.set_current_trace(recorder):
            _, pull = jax.vjp(lambda *xs: template(xs, others, made), *xs)
            columns = jax.vmap(lambda seed: segment.adjoint(pull, seed))(native(seeds))
        return self._placed([record.value_of(recorder.var_of(column)) for column in columns])
