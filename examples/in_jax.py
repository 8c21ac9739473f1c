"""Questions people ask about gradients of elements, in JAX: run `python examples/in_jax.py`.

A bare array has no history, so a function is run once by `wrt.trace` and asked about: its output, its inputs, and any name
that was bound in it.
"""

import jax
import jax.numpy as jnp
import numpy as np

import wrt
from wrt import d

jax.config.update("jax_enable_x64", True)


def check(question: str, answer: object, expected: object, tolerance: float = 1e-9) -> None:
    """Print an answer, and stop where it is not what was found another way."""
    np.testing.assert_allclose(np.asarray(answer), np.asarray(expected), rtol=tolerance, atol=tolerance)
    print(f"{question:55}", np.array2string(np.asarray(answer), precision=4, threshold=8, edgeitems=1).replace("\n", ""))


def array(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


# ---- one element of an array ----

t = wrt.trace(lambda x: 2 * x[2] + x.sum(), array(5))
y, x = t.output, t.inputs[0]
check("y = 2 x[2] + sum(x):  d(y) / d(x)[2]", d(y) / d(x)[2], 3.0)


def fill(x):
    """JAX has no writes in place: `.at[k].set` gives a new array each time."""
    h = jnp.zeros(10).at[0].set(x[0])
    for k in range(1, 10):
        h = h.at[k].set(0.9 * jnp.sin(h[k - 1]) + x[k])
    return h


t = wrt.trace(fill, array(10))
h = t.output
chain = np.prod([0.9 * np.cos(float(h.value[k])) for k in range(3, 9)])
check("h filled step by step:  d(h)[9] / d(h)[3]", d(h)[9] / d(h)[3], chain)
check("  h[3] was there first:  d(h)[3] / d(h)[9]", d(h)[3] / d(h)[9], 0.0)

mask = np.array([True, False, False, False, False])
t = wrt.trace(lambda x: (2 * x[0], 2 * jnp.take(x, jnp.array([0])), 2 * x[mask]), array(5))
(indexed, taken, masked), x = t.output, t.inputs[0]
check("by an index:  d(indexed) / d(x)", d(indexed) / d(x), [2, 0, 0, 0, 0])
check("by take:  d(taken)[0] / d(x)", d(taken)[0] / d(x), [2, 0, 0, 0, 0])
check("by a mask:  d(masked)[0] / d(x)", d(masked)[0] / d(x), [2, 0, 0, 0, 0])

t = wrt.trace(lambda x: x * 1, array(3, 3))
y, x = t.output, t.inputs[0]
one = np.zeros((3, 3))
one[1, 2] = 1
check("an element of itself:  d(x)[1, 2] / d(x)", d(x)[1, 2] / d(x), one)
check("  of a copy:  d(y)[1, 2] / d(x)", d(y)[1, 2] / d(x), one)

# ---- products, totals, feature maps ----

w = array(3, 2, seed=1)
t = wrt.trace(lambda x: (x @ w, jnp.sum(x)), array(2, 3))
(z, s), x = t.output, t.inputs[0]
row = np.zeros((2, 3))
row[0] = w[:, 0]
check("z = x @ w:  d(z)[0, 0] / d(x)", d(z)[0, 0] / d(x), row)
check("a total:  d(s) / d(x)", d(s) / d(x), np.ones((2, 3)))

kernel = array(4, 3, 3, 3, seed=1)
t = wrt.trace(lambda image: jax.lax.conv(image, kernel, (1, 1), "VALID"), array(1, 3, 8, 8))
m, image = t.output, t.inputs[0]  # pixel (4, 7) lies at (0, 2) of the window that starts at (4, 5)
check("one feature by one pixel", d(m)[0, 2, 4, 5] / d(image)[0, 1, 4, 7], kernel[2, 1, 0, 2])
check("  by a pixel out of its reach", d(m)[0, 2, 4, 5] / d(image)[0, 1, 0, 0], 0.0)

# ---- an array with respect to itself, and whole Jacobians ----

t = wrt.trace(lambda x: x * 3, array(2, 2))
y = t.output
check("the identity:  d(y) / d(y)", d(y) / d(y), np.eye(4).reshape(2, 2, 2, 2))

t = wrt.trace(lambda x: x**2, array(4))
y, x = t.output, t.inputs[0]
check("x squared:  d(y) / d(x)", d(y) / d(x), np.diag(2 * np.asarray(x.value)))

w = array(6, 8, seed=1)
f = lambda x: jnp.tanh(x @ w) * x[0]
t = wrt.trace(f, array(6))
y, x = t.output, t.inputs[0]
rows = jax.jacobian(f)(x.value)
check("a Jacobian:  d(y) / d(x)", d(y) / d(x), rows)
check("  a block of it:  d(y)[2:4] / d(x)[::2]", d(y)[2:4] / d(x)[::2], rows[2:4, ::2])
