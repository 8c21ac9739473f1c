"""Lines that share no entry, swept together with a probe, as one program.

The probe is one more line of the batch where JAX's own batching rules are all that a batch needs; otherwise it is an
unbatched pull beside it. The first answers are NumPy's, without a trace where it can be done without. Once an answer is
proven, another program gives its entries again, and nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from wrt._backends.jax import reach
from wrt._backends.jax.halves import NEITHER, ONE, OTHER, InHalves
from wrt._backends.jax.interpreted.lean import lean
from wrt._backends.jax.kinds import NoRule
from wrt._backends.jax.later import Later
from wrt._backends.jax.segment import Only, adjoint
from wrt._core.index import Positions, Shape
from wrt._core.pattern import Way

if TYPE_CHECKING:
    from wrt._backends.jax.segment import Template
    from wrt._backends.jax.sweep import JaxLinear

Array = Any
Entries = tuple[Positions, Positions]
"""Slots of the flat lines, and their places in the flat (m, n)."""
Lines = tuple[Array, Array | None]
"""(passes, width), the probe last if it is joined; else what the probe gave beside them."""


class Together:
    """Lines of these colors, of one linear map; the probe is one more line of the batch if `joined`, or else a pull."""

    __slots__ = ("_color", "_linear", "_lines", "_probes", "_way", "joined")

    def __init__(
        self, linear: JaxLinear, color: Positions, probes: dict[Way, npt.NDArray[np.float64]], way: Way
    ) -> None:
        self.joined = reach.batches_hold(linear.ops)
        self._linear = linear
        self._lines = _lines(linear.segment.template, way)
        self._color = color
        self._probes = probes
        self._way = way

    def lean(self) -> Lines | None:
        """The lines by rules in NumPy, and what differences of the run say of the probe of columns; None once it is hot."""
        linear, heat = self._linear, self._lines.heat
        if self._lines.compiled or heat.hot(coming=1):
            return None
        passes = int(self._color.max()) + 1
        known = lean(linear.ops, linear.y.key, linear.xs[0].key, linear.record.program.value, passes)
        if known is None:
            return None
        heat.asked += 1
        began = time.perf_counter()
        try:
            lines = known.swept(self._way, self._seeds(joined=False))
            said = known.differences(self._probes["push"].reshape(linear.xs[0].shape))
        except NoRule:
            return None
        heat.spent += time.perf_counter() - began
        return lines, said

    def run(self) -> Lines:
        """The lines and the probe by JAX: interpreted while they are new."""
        found: Lines = self._lines(*self._given(joined=self.joined))
        return found

    @property
    def settled(self) -> bool:
        """Whether they are compiled; before that they are interpreted, and round otherwise."""
        return self._lines.compiled

    def again(self, entries: Entries | None, proven: npt.NDArray[Any], *, dense: bool) -> Callable[[], Array] | None:
        """A program for the entries in these slots alone, in their order, or at their places if `dense`; None: all lines.

        What depends on x alone, or on the seeds alone, has been done, where that gives what was `proven`. None where
        nothing does.
        """
        linear = self._linear
        shape = (*linear.y.shape, *linear.xs[0].shape) if dense else None
        program = _again(linear.segment.template, self._way, None if entries is None else Only(entries), shape)
        given = self._given(joined=False, alone=True)
        for undivided in (program.undivided, True):
            program.undivided = undivided
            run = program.bound(*given)
            if _agree(_read(run(), entries, dense=dense), proven):
                return run
        return None

    def _given(self, *, joined: bool, alone: bool = False) -> Sequence[Any]:
        y = self._linear.y
        probe = None if joined or alone else self._probes["pull"].reshape(y.shape).astype(y.dtype)
        given: Sequence[Any] = jax.device_put(((self._seeds(joined=joined), probe), *self._linear.numbers()))
        return given

    def _seeds(self, *, joined: bool) -> npt.NDArray[Any]:
        along = self._linear.y if self._way == "pull" else self._linear.xs[0]
        seeds = np.zeros((int(self._color.max()) + 1 + joined, along.size), along.dtype)
        swept = np.flatnonzero(self._color >= 0)
        seeds[self._color[swept], swept] = 1
        if joined:
            seeds[-1] = self._probes[self._way]
        return seeds.reshape(-1, *along.shape)


def _read(made: Array, entries: Entries | None, *, dense: bool) -> npt.NDArray[Any]:
    """The entries in what a program made; all of it where some other one is not zero."""
    flat = np.asarray(made).reshape(-1)
    if not dense or entries is None:
        return flat
    found = flat[entries[1]]
    return found if np.count_nonzero(found) == np.count_nonzero(flat) else flat


def _agree(found: npt.NDArray[Any], proven: npt.NDArray[Any]) -> bool:
    """Whether both are the same but for roundoff."""
    if found.shape != proven.shape:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.abs(found - proven).max() <= math.sqrt(np.finfo(proven.dtype).eps) * np.abs(proven).max())


def together(
    linear: JaxLinear, color: Positions, probes: dict[Way, npt.NDArray[np.float64]], way: Way
) -> Together | None:
    """Programs for these colors of rows or columns; None where there can be none."""
    if len(linear.live) != 1 or len(linear.xs) != 1 or "vmap" not in linear.pull_rungs:
        return None
    return Together(linear, color, probes, way)


@lru_cache(maxsize=256)
def _lines(template: Template, way: Way) -> Later:
    return Later(partial(swept, template, way))


@lru_cache(maxsize=64)
def _again(template: Template, way: Way, entries: Only | None, dense: Shape | None) -> InHalves:
    """Where entries belong is written into the program: a compiler does more with numbers that it knows."""

    def sweep(*given: Any) -> Array:
        lines, _ = swept(template, way, *given)
        return lines if entries is None else picked(lines, entries.thing, dense)

    return InHalves(sweep, OTHER, ONE, NEITHER)


def swept(
    template: Template, way: Way, seeds: tuple[Array, Array | None], xs: Sequence[Array], others: Sequence[Array]
) -> Lines:
    """Rows by pull or columns by push, one for each seed of a batch; and what a probe gives beside them, if there is one."""
    (x,), (batch, probe) = xs, seeds
    y = lambda x: template([x], others)
    pull = jax.vjp(y, x)[1] if way == "pull" or probe is not None else None

    def line(seed: Array) -> Array:
        return jax.jvp(y, (x,), (seed,))[1].astype(x.dtype) if way == "push" else adjoint(pull, seed)[0]

    lines = jax.vmap(line)(batch).reshape(len(batch), -1)
    return lines, None if probe is None else adjoint(pull, probe)[0]


def upright(columns: Array) -> Array:
    """(m, n) from columns one after the other; without the barrier the last product is made turned around, which is slow."""
    return jax.lax.optimization_barrier(columns).T


def picked(lines: Array, entries: Entries, dense: Shape | None) -> Array:
    """The entries, or zeros with every entry where it belongs."""
    slots, places = entries
    flat = jax.lax.optimization_barrier(lines).reshape(-1)  # or a product is computed entry by entry
    values = flat.at[slots].get(mode="promise_in_bounds", unique_indices=True)
    if dense is None:
        return values
    blank = jnp.zeros(math.prod(dense), lines.dtype).at[places]
    return blank.set(values, unique_indices=True, indices_are_sorted=True, mode="promise_in_bounds").reshape(dense)
