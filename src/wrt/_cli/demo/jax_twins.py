"""The questions in JAX: a bare array has no history, so a function is run once by `wrt.trace` and asked about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import wrt
from wrt import d
from wrt._cli.demo.question import Evidence, Numbers, asked, slopes

jax.config.update("jax_enable_x64", True)  # this process is the demo's own

BY_DIFFERENCES = "central differences"
ROUGH = 1e-7


def numbers(*shape: int, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def plain(array: Any) -> Numbers:
    return np.asarray(array, dtype=np.float64)


# ------------------------------------------------------------------ 1


def element_used_twice() -> Iterator[Evidence]:
    t = wrt.trace(lambda x: 2 * x[2] + x.sum(), numbers(5))
    y, x = t.output, t.inputs[0]
    expected = slopes(lambda x: 2 * x[2] + x.sum(), plain(x.value))
    yield asked("d(y) / d(x)[2]", d(y) / d(x)[2], expected[2], BY_DIFFERENCES, tolerance=ROUGH)


def fill(x: Any) -> Any:
    """JAX has no writes in place: `.at[k].set` gives a new array each time."""
    h = jnp.zeros(10).at[0].set(x[0])
    for k in range(1, 10):
        h = h.at[k].set(0.9 * jnp.sin(h[k - 1]) + x[k])
    return h


def element_of_the_same_tensor() -> Iterator[Evidence]:
    t = wrt.trace(fill, numbers(10))
    h = t.output
    expected = 1.0
    for k in range(3, 9):
        expected *= 0.9 * np.cos(float(h.value[k]))
    yield asked("d(h)[9] / d(h)[3]", d(h)[9] / d(h)[3], expected, "the chain rule in a plain loop")
    yield asked("d(h)[3] / d(h)[9]", d(h)[3] / d(h)[9], 0.0, "h[3] was there first")


# ------------------------------------------------------------------ 2


def plain_index() -> Iterator[Evidence]:
    t = wrt.trace(lambda x: 2 * x[0], numbers(5))
    y, x = t.output, t.inputs[0]
    yield asked("d(y) / d(x)", d(y) / d(x), [2, 0, 0, 0, 0], "by hand")


def gathered() -> Iterator[Evidence]:
    t = wrt.trace(lambda x: 2 * jnp.take(x, jnp.array([0])), numbers(5))
    y, x = t.output, t.inputs[0]
    yield asked("d(y)[0] / d(x)", d(y)[0] / d(x), [2, 0, 0, 0, 0], "by hand")


def masked() -> Iterator[Evidence]:
    mask = np.array([True, False, False, False, False])
    t = wrt.trace(lambda x: 2 * x[mask], numbers(5))
    y, x = t.output, t.inputs[0]
    yield asked("d(y)[0] / d(x)", d(y)[0] / d(x), [2, 0, 0, 0, 0], "by hand")


# ------------------------------------------------------------------ 3


def element_of_itself() -> Iterator[Evidence]:
    t = wrt.trace(lambda x: x * 1, numbers(3, 3))
    y, x = t.output, t.inputs[0]
    expected = np.zeros((3, 3))
    expected[1, 2] = 1
    yield asked("d(x)[1, 2] / d(x)", d(x)[1, 2] / d(x), expected, "a one at [1, 2]")
    yield asked("d(y)[1, 2] / d(x)", d(y)[1, 2] / d(x), expected, "a one at [1, 2]")


def element_of_a_product() -> Iterator[Evidence]:
    w = numbers(3, 2, seed=1)
    t = wrt.trace(lambda x: x @ w, numbers(2, 3))
    z, x = t.output, t.inputs[0]
    expected = slopes(lambda x: sum(x[0, k] * plain(w)[k, 0] for k in range(3)), plain(x.value))
    yield asked("d(z)[0, 0] / d(x)", d(z)[0, 0] / d(x), expected, BY_DIFFERENCES, tolerance=ROUGH)


def total() -> Iterator[Evidence]:
    t = wrt.trace(jnp.sum, numbers(2, 3))
    s, x = t.output, t.inputs[0]
    yield asked("d(s) / d(x)", d(s) / d(x), np.ones((2, 3)), "ones, by hand")
    yield asked("d(s) / d(x)[1, 0]", d(s) / d(x)[1, 0], 1.0, "one, by hand")


def pixel_to_feature() -> Iterator[Evidence]:
    kernel = numbers(4, 3, 3, 3, seed=1)
    t = wrt.trace(lambda image: jax.lax.conv(image, kernel, (1, 1), "VALID"), numbers(1, 3, 8, 8))
    m, image = t.output, t.inputs[0]
    weight = plain(kernel)[2, 1, 0, 2]  # pixel (4, 7) lies at (0, 2) of the window that starts at (4, 5)
    yield asked("d(m)[0, 2, 4, 5] / d(image)[0, 1, 4, 7]", d(m)[0, 2, 4, 5] / d(image)[0, 1, 4, 7], weight, "weight")
    yield asked("d(m)[0, 2, 4, 5] / d(image)[0, 1, 0, 0]", d(m)[0, 2, 4, 5] / d(image)[0, 1, 0, 0], 0.0, "out of reach")


# ------------------------------------------------------------------ 5


def itself() -> Iterator[Evidence]:
    t = wrt.trace(lambda x: x * 3, numbers(2, 2))
    y = t.output
    yield asked("d(y) / d(y)", d(y) / d(y), np.eye(4).reshape(2, 2, 2, 2), "the identity")


def square() -> Iterator[Evidence]:
    t = wrt.trace(lambda x: x**2, numbers(4))
    y, x = t.output, t.inputs[0]
    yield asked("d(y) / d(x)", d(y) / d(x), np.diag(2 * plain(x.value)), "diag(2x), by hand")


def jacobian() -> Iterator[Evidence]:
    w = numbers(6, 8, seed=1)
    t = wrt.trace(lambda x: jnp.tanh(x @ w) * x[0], numbers(6))
    y, x = t.output, t.inputs[0]
    expected = slopes(lambda x: np.tanh(x @ plain(w)) * x[0], plain(x.value))
    yield asked("d(y) / d(x)", d(y) / d(x), expected, BY_DIFFERENCES, tolerance=ROUGH)
    yield asked("d(y)[2:4] / d(x)[::2]", d(y)[2:4] / d(x)[::2], expected[2:4, ::2], "a block of that", tolerance=ROUGH)
