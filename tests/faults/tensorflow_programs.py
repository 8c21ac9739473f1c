"""One TensorFlow program for each kind of plan."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from tests.faults.questions import Program

Tensor = Any


@cache
def weights(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape) / shape[-1] ** 0.5


def like(x: Tensor, *shape: int, seed: int = 0) -> Tensor:
    return tf.cast(tf.constant(weights(*shape, seed=seed)), x.dtype)


def times(matrix: Tensor, x: Tensor) -> Tensor:
    return tf.linalg.matvec(matrix, x)


def network(m: int, n: int) -> Any:
    return lambda x: tf.sin(times(like(x, m, n), tf.tanh(x))) + tf.cast(0.1, x.dtype)


def tokens(x: Tensor) -> Tensor:
    return tf.tanh(tf.tanh(x @ like(x, 8, 8)) @ like(x, 8, 8, seed=1))


def burgers(u: Tensor) -> Tensor:
    inner = 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) - u[1:-1] * (u[2:] - u[:-2])
    return tf.concat([u[:1], inner, u[-1:]], 0)


def mesh(x: Tensor) -> Tensor:
    """Every node reads three others, in no order."""
    near = [tf.gather(x, np.random.default_rng(seed).permutation(len(x))) for seed in range(3)]
    return tf.tanh(x + 0.3 * near[0] * near[1]) + 0.5 * tf.sin(near[2])


def narrow(x: Tensor) -> Tensor:
    inner = tf.tanh(times(like(x, 80, 200), tf.sin(x)))
    inner = tf.tanh(times(like(x, 80, 6), tf.tanh(times(like(x, 6, 80), inner))))
    return tf.sin(times(like(x, 200, 80), inner))


def attention(x: Tensor) -> Tensor:
    """A block with a residual, and a network for each token."""
    mixed = x + tf.nn.softmax(x @ tf.transpose(x), -1) @ x
    return mixed + tf.tanh(mixed @ like(x, 16, 128)) @ like(x, 128, 16)


PROGRAMS: dict[str, Program] = {
    "direct pull": Program(network(40, 50), (50,), "direct"),
    "direct pull, many calls": Program(network(40, 50), (50,), "direct", lines=7),
    "direct push": Program(network(120, 20), (20,), "direct", "push"),
    "structured pull": Program(tokens, (12, 8), "structured"),
    "banded": Program(burgers, (120,), "structured"),
    "colored": Program(mesh, (280,), "colored"),
    "direct pull, pfor": Program(network(240, 250), (250,), "direct"),
    "cut": Program(narrow, (200,), "cut"),
    "chain": Program(attention, (18, 16), "chain"),
}
