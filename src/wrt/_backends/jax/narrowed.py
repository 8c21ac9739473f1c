"""A Jacobian through a waist as one program: the columns above it, the rows below it, and their product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from wrt._backends.jax import compat
from wrt._backends.jax.together import swept, upright
from wrt._core.index import Shape
from wrt._core.value import Value

if TYPE_CHECKING:
    from wrt._backends.jax.segment import Template
    from wrt._backends.jax.sweep import JaxLinear

Array = Any
Numbers = tuple[Sequence[Array], Sequence[Array]]
"""The x of a stretch, and everything else it reads."""


def through(linear: JaxLinear, waist: Value) -> Callable[[], Array]:
    """The program that gives all of it, in the shape of y and x."""
    record, (x,), y = linear.record, linear.xs, linear.y
    above, below = record.linear(y, (waist,)), record.linear(waist, (x,))
    program = _product(above.segment.template, below.segment.template, (*y.shape, *x.shape))
    return partial(program, *jax.device_put((above.numbers(), below.numbers())))


@lru_cache(maxsize=64)
def _product(upper: Template, lower: Template, shape: Shape) -> Any:
    def program(above: Numbers, below: Numbers) -> Array:
        (waist,), _ = above
        seeds = np.eye(waist.size, dtype=waist.dtype).reshape(-1, *waist.shape)
        columns, _ = swept(upper, "push", (seeds, None), *above)
        rows, _ = swept(lower, "pull", (seeds, None), *below)
        return times(upright(columns), rows).reshape(shape)

    return compat.kept_program(program)


def times(last: Array, first: Array) -> Array:
    """A product of Jacobians, in full precision on every device."""
    return jnp.matmul(last, first, precision=jax.lax.Precision.HIGHEST)
