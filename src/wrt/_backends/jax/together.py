"""Lines that share no entry, swept together with a probe, as one compiled program.

The probe is one more line of the batch where JAX's own batching rules are all that a batch needs; otherwise it is an
unbatched pull beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from wrt._backends.jax import reach
from wrt._backends.jax.later import Later
from wrt._backends.jax.segment import adjoint
from wrt._core.index import Positions, Shape
from wrt._core.pattern import Way

if TYPE_CHECKING:
    from wrt._backends.jax.segment import Template
    from wrt._backends.jax.sweep import JaxLinear

Array = Any
Swept = tuple[Array, Array | None, Array | None]
"""(passes, width), the probe last if it is joined; else what the probe gave; and the dense answer where asked for."""


class Together(NamedTuple):
    """A program that sweeps; the probe is one more line of the batch if `joined`, or else a pull."""

    program: Later
    given: Sequence[Any]
    joined: bool

    def run(self) -> Swept:
        found: Swept = self.program(*self.given)
        return found

    @property
    def settled(self) -> bool:
        """Whether it is compiled; before that it is interpreted, and rounds otherwise."""
        return self.program.compiled


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
    program = _together(linear.segment.template, way, None if places is None else (*y.shape, *linear.xs[0].shape))
    given = jax.device_put((seeds.reshape(-1, *along.shape), probe, places, *linear.numbers()))
    return Together(program, given, joined)


@lru_cache(maxsize=256)
def _together(template: Template, way: Way, dense: Shape | None) -> Later:
    def program(seeds: Array, probe: Array | None, places: Array | None, xs: Sequence[Array], others: Sequence[Array]) -> Swept:
        (x,) = xs
        y = lambda x: template([x], others)
        pull = jax.vjp(y, x)[1] if way == "pull" or probe is not None else None

        def sweep(seed: Array) -> Array:
            return jax.jvp(y, (x,), (seed,))[1].astype(x.dtype) if way == "push" else adjoint(pull, seed)[0]

        lines = jax.vmap(sweep)(seeds).reshape(len(seeds), -1)
        said = None if probe is None else adjoint(pull, probe)[0]
        return lines, said, None if dense is None else _placed(lines, places, dense)

    return Later(program)


def _placed(lines: Array, places: Array, shape: Shape) -> Array:
    """Every entry where it belongs, zeros elsewhere."""
    flat = jnp.zeros(math.prod(shape), lines.dtype).at[places]
    values = lines.reshape(-1)[: len(places)]
    return flat.set(values, unique_indices=True, mode="promise_in_bounds").reshape(shape)
