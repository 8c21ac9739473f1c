"""Lines that share no entry, swept together with a probe, as one program.

The probe is one more line of the batch where JAX's own batching rules are all that a batch needs; otherwise it is an
unbatched pull beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from wrt._backends.jax import reach
from wrt._backends.jax.halves import NEITHER, ONE, OTHER, Halves, halves
from wrt._backends.jax.later import Later
from wrt._backends.jax.segment import Only, adjoint
from wrt._core.index import Positions, Shape
from wrt._core.pattern import Way

if TYPE_CHECKING:
    from wrt._backends.jax.segment import Template
    from wrt._backends.jax.sweep import JaxLinear

Array = Any
Swept = tuple[Array, Array | None, Array | None]
"""(passes, width), the probe last if it is joined; else what the probe gave; and the dense answer where asked for."""


class Program:
    """A sweep of a template: interpreted while it is new, then compiled in two halves, or as a whole."""

    __slots__ = ("_halves", "settled", "whole")

    def __init__(self, function: Callable[..., Swept]) -> None:
        self.whole = Later(function)
        self.settled = False
        self._halves: Halves | None = None

    def prepared(self, *given: Any) -> Callable[[], Swept]:
        """Compiled, for (seeds, xs, others): what depends on seeds or on x alone is done before the answer is asked for."""
        if not self.settled:
            self._halves, self.settled = self._in_halves(given), True
        if self._halves is None:
            return partial(self.whole, *given)
        return partial(self._halves.second, self._halves.first(*given))

    def _in_halves(self, given: Sequence[Any]) -> Halves | None:
        """Both halves, once they have given what NumPy gives for the whole: a probe would lose in them what lines lose."""
        expected = self.whole.evaluated(given)
        kinds = zip((OTHER, ONE, NEITHER), given, strict=True)
        depends = [kind for kind, arrays in kinds for _ in jax.tree.leaves(arrays)]
        made = None if expected is None else halves(self.whole.traced(given), depends)
        if made is None:
            return None
        pairs = zip(jax.tree.leaves(expected), jax.tree.leaves(made.second(made.first(*given))), strict=True)
        return made if all(_agree(np.asarray(a), np.asarray(b)) for a, b in pairs) else None


def _agree(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether both are the same but for roundoff; what is not finite has to be looked at more closely anyway."""
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.abs(a - b).max() <= math.sqrt(np.finfo(a.dtype).eps) * np.abs(a).max())


class Together:
    """A program and its numbers; the probe is one more line of the batch if `joined`, or else a pull."""

    __slots__ = ("_given", "_prepared", "_program", "joined")

    def __init__(self, program: Program, given: Sequence[Any], joined: bool) -> None:
        self._program = program
        self._given = given
        self._prepared: Callable[[], Swept] | None = None
        self.joined = joined

    def run(self) -> Swept:
        if self._prepared is None:
            found: Swept | None = None if self._program.settled else self._program.whole.interpreted(self._given)
            if found is not None:
                return found
            self._prepared = self._program.prepared(*self._given)
        return self._prepared()

    @property
    def settled(self) -> bool:
        """Whether it is compiled; before that it is interpreted, and rounds otherwise."""
        return self._prepared is not None


def together(
    linear: JaxLinear, color: Positions, probes: dict[Way, npt.NDArray[np.float64]], way: Way, places: Array | None
) -> Together | None:
    """A program for these colors of rows or columns; `places` of each entry in the flat (m, n) make it dense.

    None where no such program can be had.
    """
    if len(linear.live) != 1 or len(linear.xs) != 1 or "vmap" not in linear.pull_rungs:
        return None
    joined = reach.batches_hold(linear.ops)
    y, along = linear.y, linear.y if way == "pull" else linear.xs[0]
    passes = int(color.max()) + 1
    seeds = np.zeros((passes + joined, along.size), along.dtype)
    swept = np.flatnonzero(color >= 0)
    seeds[color[swept], swept] = 1
    if joined:
        seeds[-1] = probes[way]
    probe = None if joined else probes["pull"].reshape(y.shape).astype(y.dtype)
    dense = None if places is None else (*y.shape, *linear.xs[0].shape)
    program = _together(linear.segment.template, way, dense, None if places is None else Only(places))
    given = jax.device_put(((seeds.reshape(-1, *along.shape), probe), *linear.numbers()))
    return Together(program, given, joined)


@lru_cache(maxsize=64)
def _together(template: Template, way: Way, dense: Shape | None, places: Only | None) -> Program:
    """Where entries belong is written into the program: a compiler does more with numbers that it knows."""

    def program(seeds: tuple[Array, Array | None], xs: Sequence[Array], others: Sequence[Array]) -> Swept:
        (x,), (lines_of, probe) = xs, seeds
        y = lambda x: template([x], others)
        pull = jax.vjp(y, x)[1] if way == "pull" or probe is not None else None

        def sweep(seed: Array) -> Array:
            return jax.jvp(y, (x,), (seed,))[1].astype(x.dtype) if way == "push" else adjoint(pull, seed)[0]

        lines = jax.vmap(sweep)(lines_of).reshape(len(lines_of), -1)
        said = None if probe is None else adjoint(pull, probe)[0]
        return lines, said, None if dense is None or places is None else _placed(lines, places.thing, dense)

    return Program(program)


def _placed(lines: Array, places: Array, shape: Shape) -> Array:
    """Every entry where it belongs, zeros elsewhere."""
    values = jax.lax.optimization_barrier(lines).reshape(-1)[: len(places)]  # or a product is computed entry by entry
    flat = jnp.zeros(math.prod(shape), lines.dtype).at[places]
    return flat.set(values, unique_indices=True, mode="promise_in_bounds").reshape(shape)
