"""A block of the Jacobian and its proof as one compiled program.

An operation of JAX outside `jit` takes longer to set up than a small network takes to run. So all rows (or columns), the
engine's own unbatched pull of a random probe, and what the two differ by come out of one call, and nothing else is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from wrt._backends.jax.refusals import said
from wrt._backends.jax.seeds import written_out
from wrt._backends.jax.segment import adjoint
from wrt._core.index import Positions, Shape
from wrt._core.pattern import Way

if TYPE_CHECKING:
    from wrt._backends.jax.segment import Template
    from wrt._backends.jax.sweep import JaxLinear

Array = Any
Proven = tuple[Array, tuple[float, float, float]]
"""(m, n), and the largest of |u| @ |J|, of the engine's u @ J, and of what the two u @ J differ by."""

Times = Callable[[Array, Array], Array]
"""u @ J of a block that lies by rows, or by columns."""

MOST_BYTES = 2**28  # of all seeds together; more is swept in chunks


class Blocks:
    """The blocks of one linear map: set up at the first question about each, then one call."""

    def __init__(self, linear: JaxLinear) -> None:
        self.linear = linear
        self._ready: dict[tuple[Way, bytes | None], Callable[[], Any] | None] = {}

    def __call__(self, rows: Positions | None, way: Way, weights: npt.NDArray[np.float64]) -> Proven | None:
        """The rows at these positions (None: all of them); None where no such program can be had."""
        key = (way, None if rows is None else rows.tobytes())
        if key not in self._ready:
            self._ready[key] = self._set_up(rows, way, weights)
        run = self._ready[key]
        if run is None:
            return None
        try:
            block, told = run()
        except Exception:  # an operation without a rule for batches: other ways are left
            self._ready[key] = None
            return None
        summed, said, residual = np.asarray(told).tolist()
        return block, (summed, said, residual)

    def _set_up(self, rows: Positions | None, way: Way, weights: npt.NDArray[np.float64]) -> Callable[[], Any] | None:
        linear = self.linear
        y = linear.y
        if len(linear.xs) != 1 or len(linear.live) != 1 or "vmap" not in linear.pull_rungs:
            return None
        x = linear.xs[0]
        lines = weights.shape[1] if way == "pull" else x.size
        if lines * max(y.size, x.size) * np.dtype(y.dtype).itemsize > MOST_BYTES:
            return None
        places = np.arange(y.size) if rows is None else rows
        given = jax.device_put((places, weights[0].astype(np.float32), *linear.numbers()))
        program = (_by_rows if way == "pull" else _by_columns)(linear.segment.template, rows is None)
        return lambda: program(*given)


class Row:
    """One row of the Jacobian, by the engine's own unbatched pull: one call for each position."""

    __slots__ = ("leaves", "program")

    def __init__(self, linear: JaxLinear) -> None:
        leaves, structure = jax.tree.flatten(linear.linearized())
        self.leaves: list[Array] = leaves
        self.program = _row(structure, linear.y.shape, linear.y.dtype)

    def __call__(self, position: int) -> Array:
        """In x's own shape."""
        try:
            return self.program(position, *self.leaves)
        except Exception as error:
            raise said(error) from error


@lru_cache(maxsize=256)
def _row(structure: Any, shape: Shape, dtype: Any) -> Callable[..., Any]:
    def program(place: Array, *leaves: Array) -> Array:
        return adjoint(jax.tree.unflatten(structure, leaves), written_out(place, shape, dtype))[0]

    return jax.jit(program)


@lru_cache(maxsize=256)
def _by_rows(template: Template, everything: bool) -> Callable[..., Any]:
    def program(places: Array, weights: Array, xs: Sequence[Array], others: Sequence[Array]) -> Any:
        made, pull = jax.vjp(lambda x: template([x], others), *xs)
        rows = jnp.arange(len(weights)) if everything else places
        (block,) = jax.vmap(lambda place: adjoint(pull, written_out(place, made.shape, made.dtype)))(rows)
        block = block.reshape(len(weights), -1)
        times = lambda rows, u: jnp.matmul(u, rows, precision="highest")
        return block, _proven(block, times, None if everything else places, weights, pull, made.shape, made.dtype)

    return jax.jit(program)


@lru_cache(maxsize=256)
def _by_columns(template: Template, everything: bool) -> Callable[..., Any]:
    def program(places: Array, weights: Array, xs: Sequence[Array], others: Sequence[Array]) -> Any:
        y = lambda x: template([x], others)
        (x,) = xs
        made, pull = jax.vjp(y, x)

        def column(place: Array) -> Array:
            return jax.jvp(y, (x,), (written_out(place, x.shape, x.dtype),))[1]

        columns = jax.vmap(column)(jnp.arange(x.size)).reshape(x.size, -1)
        columns = (columns if everything else columns[:, places]).astype(x.dtype)
        times = lambda columns, u: jnp.matmul(columns, u, precision="highest")
        told = _proven(columns, times, None if everything else places, weights, pull, made.shape, made.dtype)
        return columns.T, told

    return jax.jit(program)


def _proven(block: Array, times: Times, places: Array | None, weights: Array, pull: Any, shape: Shape, dtype: Any) -> Array:
    """The random probe of a block, as it lies in memory (transposing it would cost a copy), beside a plain pull."""
    weights = weights.astype(dtype)  # as the engine gets them, rounded
    seed = weights if places is None else jnp.zeros(int(np.prod(shape)), dtype).at[places].add(weights)
    (expected,) = adjoint(pull, seed.reshape(shape))
    wide = jnp.promote_types(block.dtype, jnp.float32)
    block, weights, expected = block.astype(wide), weights.astype(wide), expected.reshape(-1).astype(wide)
    got, size = times(block, weights), times(jnp.abs(block), jnp.abs(weights))
    return jnp.stack([jnp.max(size), jnp.max(jnp.abs(expected)), jnp.max(jnp.abs(got - expected))])
