"""One JAX program for each kind of plan."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.faults.questions import Program

Array = Any


@cache
def weights(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape) / shape[-1] ** 0.5


def like(x: Array, *shape: int, seed: int = 0) -> Array:
    return jnp.asarray(weights(*shape, seed=seed), x.dtype)


def network(m: int, n: int) -> Any:
    return lambda x: jnp.sin(like(x, m, n) @ jnp.tanh(x)) + 0.1


def tokens(x: Array) -> Array:
    return jnp.tanh(jnp.tanh(x @ like(x, 8, 8)) @ like(x, 8, 8, seed=1))


def fewer(x: Array) -> Array:
    """For each token fewer numbers than it has."""
    return tokens(x) @ like(x, 8, 3)


def burgers(u: Array) -> Array:
    inner = 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) - u[1:-1] * (u[2:] - u[:-2])
    return jnp.concatenate([u[:1], inner, u[-1:]])


def readings(a: Array) -> Array:
    """Six quantities at every point of a grid, each from the point and its four neighbors."""
    around = jnp.pad(a, 1, mode="edge")
    five = (around[2:, 1:-1], around[:-2, 1:-1], around[1:-1, 2:], around[1:-1, :-2], a)
    return jnp.stack([sum((k + j + 1) * jnp.sin(one) for j, one in enumerate(five)) for k in range(6)])


def links(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).permutation(count)


def mesh(x: Array) -> Array:
    """Every node reads three others, in no order."""
    near = [x[links(len(x), seed)] for seed in range(3)]
    return jnp.tanh(x + 0.3 * near[0] * near[1]) + 0.5 * jnp.sin(near[2])


def arrow(x: Array) -> Array:
    """A mesh in which every node reads one of them, and one of them all nodes."""
    return jnp.concatenate([mesh(x)[:-1] * jnp.sin(x[7]), (x**2).sum()[None]])


def narrow(x: Array) -> Array:
    inner = jnp.tanh(like(x, 80, 200) @ jnp.sin(x))
    inner = jnp.tanh(like(x, 80, 6) @ jnp.tanh(like(x, 6, 80) @ inner))
    return jnp.sin(like(x, 200, 80) @ inner)


def residual(x: Array) -> Array:
    inner = jnp.tanh(like(x, 60, 200) @ jnp.sin(x))
    return x + like(x, 200, 60) @ jnp.tanh(like(x, 60, 5) @ (like(x, 5, 60) @ inner))


def attention(x: Array) -> Array:
    """A block with a residual, and a network for each token."""
    mixed = x + jax.nn.softmax(x @ x.T, -1) @ x
    return mixed + jnp.tanh(mixed @ like(x, 16, 128)) @ like(x, 128, 16)


def last_layer(x: Array) -> Array:
    return like(x, 70, 90) @ jnp.tanh(like(x, 90, 100) @ x)


PROGRAMS: dict[str, Program] = {
    "direct pull": Program(network(40, 50), (50,), "direct"),
    "direct pull, many calls": Program(network(40, 50), (50,), "direct", lines=7),
    "direct push": Program(network(120, 20), (20,), "direct", "push"),
    "structured pull": Program(fewer, (30, 8), "structured"),
    "structured push": Program(readings, (8, 10), "structured", "push"),
    "banded": Program(burgers, (120,), "structured", "push"),
    "colored": Program(mesh, (280,), "colored", "push"),
    "colored, columns apart": Program(arrow, (280,), "colored"),
    "cut": Program(narrow, (200,), "cut"),
    "sum": Program(residual, (200,), "sum"),
    "chain": Program(attention, (18, 16), "chain"),
    "last layer's weights": Program(last_layer, (100,), "direct"),
}
