"""A block of the Jacobian as one compiled program.

An operation of JAX outside `jit` takes longer to set up than a small network takes to run. So all rows (or columns) come
out of one call, which can be made again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wrt._backends.jax.halves import NEITHER, ONE, OTHER, InHalves
from wrt._backends.jax.later import Later
from wrt._backends.jax.refusals import said
from wrt._backends.jax.seeds import written_out
from wrt._backends.jax.segment import adjoint
from wrt._backends.jax.together import upright
from wrt._core.index import Elements, Positions, Shape
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

    def __call__(self, rows: Positions | None, way: Way, count: int) -> tuple[Array, Callable[[], Array] | None] | None:
        """The `count` rows at these positions (None: all of them, in y's own shape), and the program that made them.

        The program is None while it is not compiled yet: it will round otherwise. None where it cannot be had at all.
        """
        if not self._fits(way, count):
            return None
        try:
            program, given = self._by_rows(rows) if way == "pull" else self._by_columns(rows)
            found = None if program.compiled else program.interpreted(given)
            if found is not None:
                return found, None
            program.compiled = True
            again = self._in_halves(rows, way)
            return again(), again
        except Exception:  # an operation without a rule for batches: other ways are left
            return None

    def settles(self, way: Way, count: int) -> bool:
        """Whether a program for all rows or columns is compiled now, or was before."""
        if not self._fits(way, count):
            return False
        try:
            program, given = self._by_rows(None) if way == "pull" else self._by_columns(None)
            return program.settles(given)
        except Exception:  # an operation without a rule for batches
            return False

    def _fits(self, way: Way, rows: int) -> bool:
        linear = self.linear
        if len(linear.xs) != 1 or len(linear.live) != 1 or "vmap" not in linear.pull_rungs:
            return False
        y, x = linear.y, linear.xs[0]
        lines = rows if way == "pull" else x.size
        return bool(lines * max(y.size, x.size) * np.dtype(y.dtype).itemsize <= MOST_BYTES)

    def _by_rows(self, rows: Positions | None) -> tuple[Later, Sequence[Any]]:
        leaves, structure = _laid_open(self.linear)
        y = self.linear.y
        return _rows(structure, y.shape, y.dtype), (jax.device_put(rows), *leaves)

    def _by_columns(self, rows: Positions | None) -> tuple[Later, Sequence[Any]]:
        places = np.arange(self.linear.xs[0].size)
        return _columns(self.linear.segment.template).new, jax.device_put((places, rows, *self.linear.numbers()))

    def _in_halves(self, rows: Positions | None, way: Way) -> Callable[[], Array]:
        """The same, compiled: what depends on the positions or on x alone has been done."""
        linear, template = self.linear, self.linear.segment.template
        if way == "push":
            return _columns(template).again.bound(*self._by_columns(rows)[1])
        places = jax.device_put(np.arange(linear.y.size) if rows is None else rows)
        return _rows_again(template, linear.y.shape, linear.y.dtype, rows is None).bound(
            places, *jax.device_put(linear.numbers())
        )


def _laid_open(linear: JaxLinear) -> tuple[list[Array], Any]:
    """What a pull keeps, where programs run, and how it hangs together."""
    leaves, structure = jax.tree.flatten(linear.linearized())
    return jax.device_put(leaves), structure


class Row:
    """One row of the Jacobian, or one element of it, by the engine's own unbatched pull: one call for each position."""

    __slots__ = ("_element", "_row", "leaves")

    def __init__(self, linear: JaxLinear) -> None:
        self.leaves, structure = _laid_open(linear)
        self._row = _row(structure, linear.y.shape, linear.y.dtype)
        self._element = _element(structure, linear.y.shape, linear.y.dtype)

    def __call__(self, position: int) -> Array:
        """In x's own shape."""
        return self._called(self._row, position)

    def element(self, position: int, there: int) -> Array:
        """The element of the row at a flat position of x."""
        return self._called(self._element, position, there)

    def _called(self, program: Later, *places: int) -> Array:
        try:
            found = program(*map(_sent, places), *self.leaves)
        except Exception as error:
            raise said(error) from error
        return found if program.compiled else jax.device_put(found)

    def again(self, position: int, elements: Elements) -> Callable[[], Array] | None:
        """The call that gives these elements of a row; None while it is not compiled yet: it will round otherwise."""
        place, whole = _sent(position), elements.shape == elements.of and elements.everything
        if elements.shape == () and not whole:
            one = self._element
            return one.bound(place, _sent(elements.first), *self.leaves) if one.compiled else None
        if not self._row.compiled:
            return None
        row = self._row.bound(place, *self.leaves)
        if whole:
            return row
        there = jax.device_put(elements.positions.astype(np.int32).reshape(elements.shape))
        return lambda: _picked(row(), there)


@lru_cache(maxsize=4096)
def _sent(position: int) -> Array:
    """A position where programs run: sending a number there takes longer than most rows."""
    return jax.device_put(np.int32(position))


@jax.jit
def _picked(row: Array, there: Array) -> Array:
    return row.reshape(-1).at[there].get(mode="promise_in_bounds")


@lru_cache(maxsize=256)
def _row(structure: Any, shape: Shape, dtype: Any) -> Later:
    def program(place: Array, *leaves: Array) -> Array:
        (found,) = adjoint(jax.tree.unflatten(structure, leaves), written_out(place, shape, dtype))
        return found

    return Later(program)


@lru_cache(maxsize=256)
def _element(structure: Any, shape: Shape, dtype: Any) -> Later:
    def program(place: Array, there: Array, *leaves: Array) -> Array:
        (found,) = adjoint(jax.tree.unflatten(structure, leaves), written_out(place, shape, dtype))
        return jax.lax.dynamic_index_in_dim(found.reshape(-1), there, keepdims=False)

    return Later(program)


@lru_cache(maxsize=256)
def _rows(structure: Any, shape: Shape, dtype: Any) -> Later:
    """The rows at some places, or all of them in y's own shape, from what a pull keeps."""

    def program(places: Array | None, *leaves: Array) -> Array:
        pull = jax.tree.unflatten(structure, leaves)
        chosen = jnp.arange(math.prod(shape)) if places is None else places
        return _pulled(pull, chosen, shape, dtype, everything=places is None)

    return Later(program)


@lru_cache(maxsize=256)
def _rows_again(template: Template, shape: Shape, dtype: Any, everything: bool) -> InHalves:
    """The same from x on."""

    def program(places: Array, xs: Sequence[Array], others: Sequence[Array]) -> Array:
        pull = jax.vjp(lambda x: template([x], others), *xs)[1]
        return _pulled(pull, places, shape, dtype, everything=everything)

    return InHalves(program, OTHER, ONE, NEITHER)


def _pulled(pull: Any, places: Array, shape: Shape, dtype: Any, *, everything: bool) -> Array:
    (block,) = jax.vmap(lambda place: adjoint(pull, written_out(place, shape, dtype)))(places)
    return block.reshape(*shape, *block.shape[1:]) if everything else block


class Columns(NamedTuple):
    """A program while it is new, and when it is asked for again."""

    new: Later
    again: InHalves


@lru_cache(maxsize=256)
def _columns(template: Template) -> Columns:
    """The columns at all `places` of x, and of them some rows, or all in y's own shape."""

    def program(places: Array, rows: Array | None, xs: Sequence[Array], others: Sequence[Array]) -> Array:
        (x,) = xs

        def column(place: Array) -> Array:
            return jax.jvp(lambda x: template([x], others), (x,), (written_out(place, x.shape, x.dtype),))[1]

        columns = jax.vmap(column)(places).astype(x.dtype)  # (n, *y.shape)
        shape = columns.shape[1:] if rows is None else rows.shape
        columns = columns.reshape(x.size, -1)
        return upright(columns if rows is None else columns[:, rows]).reshape(*shape, *x.shape)

    return Columns(Later(program), InHalves(program, OTHER, NEITHER, ONE, NEITHER))
