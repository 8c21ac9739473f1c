"""Lines that share no entry, swept together with a probe, as one program.

The probe is one more line of the batch where JAX's own batching rules are all that a batch needs; otherwise it is an
unbatched pull beside it. The first answers are NumPy's, without a trace where it can be done without.
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
Swept = tuple[Array, Array | None, Array | None]
"""The same, and the dense answer where it was asked for; NumPy leaves that to whoever asks."""


class Program:
    """A sweep of a template: interpreted while it is new, then compiled in two halves, or as a whole."""

    __slots__ = ("_whole", "lines", "settled")

    def __init__(self, lines: Later, whole: Callable[..., Swept]) -> None:
        self.lines = lines
        self.settled = False
        self._whole = InHalves(whole, OTHER, ONE, NEITHER)

    def prepared(self, *given: Any) -> Callable[[], Swept]:
        """Compiled, for (seeds, xs, others); in halves where these gave what NumPy gives for the whole."""
        if not self.settled:
            self._whole.undivided, self.settled = not self._halves_hold(given), True
        return self._whole.bound(*given)

    def _halves_hold(self, given: Sequence[Any]) -> bool:
        """A probe in the batch cannot tell: it would lose in the halves what the lines lose."""
        expected: Lines | None = self.lines.evaluated(given)
        if expected is None:
            return False
        *found, _ = self._whole.bound(*given)()
        pairs = zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True)
        return all(_agree(np.asarray(a), np.asarray(b)) for a, b in pairs)


def _agree(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether both are the same but for roundoff; what is not finite has to be looked at more closely anyway."""
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.abs(a - b).max() <= math.sqrt(np.finfo(a.dtype).eps) * np.abs(a).max())


class Together:
    """A program and its numbers; the probe is one more line of the batch if `joined`, or else a pull."""

    __slots__ = ("_color", "_given", "_linear", "_prepared", "_probes", "_program", "_way", "joined")

    def __init__(
        self, linear: JaxLinear, program: Program, color: Positions, probes: dict[Way, npt.NDArray[np.float64]], way: Way
    ) -> None:
        self.joined = reach.batches_hold(linear.ops)
        self._linear = linear
        self._program = program
        self._color = color
        self._probes = probes
        self._way = way
        self._given: Sequence[Any] | None = None
        self._prepared: Callable[[], Swept] | None = None

    def lean(self) -> Lines | None:
        """The lines by rules in NumPy, and what differences of the run say of the probe of columns; None once it is hot."""
        linear, heat = self._linear, self._program.lines.heat
        if self._program.settled or heat.hot(coming=1):
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

    def run(self) -> Swept:
        """By JAX: interpreted while it is new."""
        if self._prepared is None:
            given = self._numbers()
            found: Lines | None = None if self._program.settled else self._program.lines.interpreted(given)
            if found is not None:
                return *found, None
            self._prepared = self._program.prepared(*given)
        return self._prepared()

    @property
    def settled(self) -> bool:
        """Whether it is compiled; before that it is interpreted, and rounds otherwise."""
        return self._prepared is not None

    def _numbers(self) -> Sequence[Any]:
        if self._given is None:
            y, joined = self._linear.y, self.joined
            probe = None if joined else self._probes["pull"].reshape(y.shape).astype(y.dtype)
            self._given = jax.device_put(((self._seeds(joined=joined), probe), *self._linear.numbers()))
        return self._given

    def _seeds(self, *, joined: bool) -> npt.NDArray[Any]:
        along = self._linear.y if self._way == "pull" else self._linear.xs[0]
        seeds = np.zeros((int(self._color.max()) + 1 + joined, along.size), along.dtype)
        swept = np.flatnonzero(self._color >= 0)
        seeds[self._color[swept], swept] = 1
        if joined:
            seeds[-1] = self._probes[self._way]
        return seeds.reshape(-1, *along.shape)


def together(
    linear: JaxLinear, color: Positions, probes: dict[Way, npt.NDArray[np.float64]], way: Way, entries: Entries | None
) -> Together | None:
    """A program for these colors of rows or columns; the `entries` make it dense.

    None where no such program can be had.
    """
    if len(linear.live) != 1 or len(linear.xs) != 1 or "vmap" not in linear.pull_rungs:
        return None
    dense = None if entries is None else (*linear.y.shape, *linear.xs[0].shape)
    program = _together(linear.segment.template, way, dense, None if entries is None else Only(entries))
    return Together(linear, program, color, probes, way)


@lru_cache(maxsize=64)
def _together(template: Template, way: Way, dense: Shape | None, entries: Only | None) -> Program:
    """Where entries belong is written into the program: a compiler does more with numbers that it knows."""

    def sweep(*given: Any) -> Swept:
        lines, said = _sweep(template, way, *given)
        if dense is None or entries is None:
            return lines, said, None
        return lines, said, _placed(lines[: len(lines) - (said is None)], entries.thing, dense)

    return Program(_lines(template, way), sweep)


@lru_cache(maxsize=256)
def _lines(template: Template, way: Way) -> Later:
    return Later(partial(_sweep, template, way))


def _sweep(
    template: Template, way: Way, seeds: tuple[Array, Array | None], xs: Sequence[Array], others: Sequence[Array]
) -> Lines:
    (x,), (batch, probe) = xs, seeds
    y = lambda x: template([x], others)
    pull = jax.vjp(y, x)[1] if way == "pull" or probe is not None else None

    def line(seed: Array) -> Array:
        return jax.jvp(y, (x,), (seed,))[1].astype(x.dtype) if way == "push" else adjoint(pull, seed)[0]

    lines = jax.vmap(line)(batch).reshape(len(batch), -1)
    return lines, None if probe is None else adjoint(pull, probe)[0]


def _placed(lines: Array, entries: Entries, shape: Shape) -> Array:
    """Every entry where it belongs, zeros elsewhere."""
    values = jax.lax.optimization_barrier(lines).reshape(-1)  # or a product is computed entry by entry
    slots, places = entries
    if len(slots) < values.size:  # sorted, while this is traced: what nobody owns is left out on the way
        order = np.argsort(places)
        values, places = values.at[slots[order]].get(mode="promise_in_bounds", unique_indices=True), places[order]
    flat = jnp.zeros(math.prod(shape), lines.dtype).at[places]
    return flat.set(values, unique_indices=True, mode="promise_in_bounds").reshape(shape)
