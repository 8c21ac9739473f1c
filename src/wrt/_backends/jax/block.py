"""A block of the Jacobian as one compiled program.

An operation of JAX outside `jit` takes longer to set up than a small network takes to run. So all rows (or columns) come
out of one call, which can be made again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from wrt._backends.jax.later import Later
from wrt._backends.jax.refusals import said
from wrt._backends.jax.seeds import written_out
from wrt._backends.jax.segment import adjoint
from wrt._core.index import Positions, Shape
from wrt._core.pattern import Way

if TYPE_CHECKING:
    from wrt._backends.jax.segment import Template
    from wrt._backends.jax.sweep import JaxLinear

Array = Any

MOST_BYTES = 2**28  # of all seeds together; more is swept in chunks


class Blocks:
    """The blocks of one linear map."""

    def __init__(self, linear: JaxLinear) -> None:
        self.linear = linear

    def __call__(self, rows: Positions | None, way: Way, count: int) -> tuple[Array, Callable[[], Array]] | None:
        """The `count` rows at these positions (None: all of them), and the program that made them.

        None where no such program can be had.
        """
        if not self._fits(way, count):
            return None
        try:
            run = self._by_rows(rows) if way == "pull" else self._by_columns(rows)
            return run(), run
        except Exception:  # an operation without a rule for batches: other ways are left
            return None

    def _fits(self, way: Way, rows: int) -> bool:
        linear = self.linear
        if len(linear.xs) != 1 or len(linear.live) != 1 or "vmap" not in linear.pull_rungs:
            return False
        y, x = linear.y, linear.xs[0]
        lines = rows if way == "pull" else x.size
        return bool(lines * max(y.size, x.size) * np.dtype(y.dtype).itemsize <= MOST_BYTES)

    def _by_rows(self, rows: Positions | None) -> Callable[[], Array]:
        leaves, structure = jax.tree.flatten(self.linear.linearized())
        y = self.linear.y
        places = jax.device_put(np.arange(y.size) if rows is None else rows)
        return partial(_rows(structure, y.shape, y.dtype), places, *leaves)

    def _by_columns(self, rows: Positions | None) -> Callable[[], Array]:
        program = _columns(self.linear.segment.template)
        return partial(program, *jax.device_put((rows, *self.linear.numbers())))


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

    return Later(program)


@lru_cache(maxsize=256)
def _rows(structure: Any, shape: Shape, dtype: Any) -> Callable[..., Any]:
    """The rows at some places, from what a pull keeps."""

    def program(places: Array, *leaves: Array) -> Array:
        pull = jax.tree.unflatten(structure, leaves)
        (block,) = jax.vmap(lambda place: adjoint(pull, written_out(place, shape, dtype)))(places)
        return block.reshape(len(places), -1)

    return Later(program)


@lru_cache(maxsize=256)
def _columns(template: Template) -> Callable[..., Any]:
    """All columns, and of them the rows at some places."""

    def program(places: Array | None, xs: Sequence[Array], others: Sequence[Array]) -> Array:
        (x,) = xs

        def column(place: Array) -> Array:
            return jax.jvp(lambda x: template([x], others), (x,), (written_out(place, x.shape, x.dtype),))[1]

        columns = jax.vmap(column)(jnp.arange(x.size)).reshape(x.size, -1)
        return (columns if places is None else columns[:, places]).astype(x.dtype).T

    return Later(program)
