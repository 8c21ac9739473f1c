"""Failures in JAX in the shapes in which programs have them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from tests.why._programs import Programs

programs = Programs()


def ramp(n: int = 3) -> jax.Array:
    return jnp.linspace(0.5, 1.5, n)


def layer(w, x):
    return jnp.tanh(x @ w)


@programs.show("stop_gradient")
def a_target_of_the_wrong_branch():
    def loss(w):
        pred = jax.lax.stop_gradient(layer(w, jnp.ones((2, 3))))  # <-
        return jnp.mean((pred - 1.0) ** 2)

    return loss, (jnp.ones((3, 2)),)


@programs.show("argmax")
def hard_routing():
    experts = jnp.arange(12.0).reshape(4, 3)

    def f(logits):
        best = jnp.argmax(logits * 2)  # <-
        return experts[best].sum()

    return f, (ramp(4),)


@programs.show("round")
def quantize():
    @jax.jit
    def q(x):
        return jnp.round(x * 16) / 16  # <-

    return (lambda x: jnp.sum(q(x) ** 2)), (ramp(),)


@programs.show("sign")
def binary_weights():
    def f(w):
        return jnp.dot(jnp.sign(w), jnp.arange(3.0))  # <-

    return f, (ramp(),)


@programs.show("comparison")
def counting():
    def f(x):
        hits = (x > 0.9).astype(jnp.float32)  # <-
        return hits.mean()

    return f, (ramp(),)


@programs.show("dead_relu")
def all_off():
    def f(x):
        h = jax.nn.relu(x - 50.0)  # <-
        return jnp.sum(h * 3)

    return f, (ramp(),)


@programs.show("clamp")
def clipped():
    def f(x):
        return jnp.sum(jnp.clip(x + 9, -1.0, 1.0) * jnp.arange(3.0))  # <-

    return f, (ramp(),)


@programs.show("saturated")
def far_out():
    def f(x):
        return jnp.sum(jnp.tanh(x * 1000.0))  # <-

    return f, (ramp(),)


@programs.show("invariant_output")
def probabilities_sum_to_one():
    def f(x):
        return jax.nn.softmax(x).sum()  # <-

    return f, (ramp(),)


@programs.show("log_zero")
def entropy():
    def f(p):
        return -jnp.sum(p * jnp.log(p))  # <-

    return f, (jnp.array([0.0, 0.5, 0.5]),)


@programs.show("sqrt_at_zero")
def distance_of_a_point_to_itself():
    def f(x):
        return jnp.sqrt(jnp.sum((x - x[0]) ** 2 * 0))  # <-

    return f, (ramp(),)


@programs.show("where_nan_trap")
def guarded_too_late():
    def f(x):
        return jnp.sum(jnp.where(x > 0, jnp.sqrt(x), 0.0))  # <-

    return f, (jnp.array([0.0, 1.0]),)


@programs.show("norm_at_zero")
def norm_of_nothing():
    def f(x):
        return jnp.linalg.norm(x)  # <-

    return f, (jnp.zeros(3),)


@programs.show("mask")
def masked_by_zeros():
    def f(x):
        return jnp.sum(jnp.sin(x) * jnp.zeros(3)) + 1.0  # <-

    return f, (ramp(),)


@programs.show("not_indexed", at=0)
def another_row():
    def f(table):
        return jnp.sum(table[jnp.array([1, 2])] ** 2)  # <-

    return f, (ramp(4),)


@programs.show("inplace_overwrite", at=1)
def set_afterwards():
    def f(x):
        h = x * 2
        h = h.at[1].set(7.0)  # <-
        return jnp.sum(h**2)

    return f, (ramp(),)


@programs.show("integer_cast")
def indices_from_positions():
    table = jnp.arange(8.0)

    def f(x):
        k = (x * 2).astype(jnp.int32)  # <-
        return table[k].sum()

    return f, (ramp(),)


@programs.show("sort_indices")
def ranking():
    def f(x):
        order = jnp.argsort(x)  # <-
        return jnp.dot(order.astype(jnp.float32), jnp.arange(3.0))

    return f, (ramp(),)


@programs.show("exploding_product")
def a_loop_that_grows():
    def f(x):
        h = x
        for _ in range(14):
            h = h * 30.0  # <-
        return h.sum()

    return f, (ramp(),)


@programs.show("none")
def a_healthy_mlp():
    def f(w, x):
        h = jax.nn.gelu(layer(w, x))
        best = jnp.argmax(h)  # a metric, not on the path
        jax.debug.callback(lambda k: None, best)
        return jnp.mean(h**2)

    return f, (jnp.ones((3, 2)) * 0.1, jnp.ones((2, 3)))


@programs.show("none")
def straight_through():
    def f(x):
        return jnp.sum(x + jax.lax.stop_gradient(jnp.round(x) - x))

    return f, (ramp(),)


@programs.show("none")
def a_safe_where():
    def f(x):
        safe = jnp.where(x > 0, x, 1.0)
        return jnp.sum(jnp.where(x > 0, jnp.log(safe), 0.0))

    return f, (jnp.array([0.0, 2.0]),)


@programs.show("none")
def a_scan_with_a_carry():
    @partial(jax.jit, static_argnums=1)
    def run(x, n):
        def step(h, k):
            return jnp.tanh(h + 0.1 * k), h

        h, seen = jax.lax.scan(step, x, jnp.arange(n, dtype=jnp.float32))
        return h.sum() + seen.mean()

    return (lambda x: run(x, 5)), (ramp(),)


@programs.show("none")
def numbers_from_numpy():
    weights = np.arange(3.0)

    def f(x):
        return jnp.dot(x**2, weights)

    return f, (ramp(),)
