"""Mistakes in JAX, and healthy functions that look like them."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.why._programs import Programs

programs = Programs()
show = programs.show


@show("stop_gradient")
def a_target_without_gradient():
    def f(x):
        h = lax.stop_gradient(jnp.tanh(x))  # <-
        return jnp.sum(h**2)

    return f, (jnp.ones(3),)


@show("argmax")
def the_best_of_a_table():
    def f(x):
        k = jnp.argmin(x)  # <-
        return jnp.arange(3.0)[k] * 2

    return f, (jnp.array([0.3, 0.1, 0.2]),)


@show("comparison")
def a_hard_gate():
    def f(x):
        gate = jnp.where(x > 0.5, 1.0, 0.0)  # <-
        return jnp.sum(gate * 3)

    return f, (jnp.array([0.3, 0.9]),)


@show("round")
def a_floor():
    def f(x):
        return jnp.sum(jnp.floor(x) * 2)  # <-

    return f, (jnp.array([0.3, 1.9]),)


@show("dead_relu")
def maximum_with_zero():
    def f(x):
        h = jax.nn.relu(x)  # <-
        return jnp.sum(h * 2)

    return f, (jnp.array([-0.3, -1.9]),)


@show("saturated")
def sigmoid_far_out():
    def f(x):
        h = jax.nn.sigmoid(x)  # <-
        return jnp.sum(h**2)

    return f, (jnp.array([200.0, -200.0]),)


@show("mask")
def times_zero():
    def f(x):
        h = x * jnp.zeros(2)  # <-
        return jnp.sum(h)

    return f, (jnp.array([1.0, 2.0]),)


@show("not_indexed", at=2)
def a_slice():
    def f(x):
        head = x[:2]  # <-
        return jnp.sum(head**2)

    return f, (jnp.array([1.0, 2.0, 3.0]),)


@show("invariant_output")
def sum_of_softmax():
    def f(x):
        p = jax.nn.softmax(x)  # <-
        return jnp.sum(p)

    return f, (jnp.array([1.0, 2.0, 3.0]),)


@show("where_nan_trap")
def where_over_a_log():
    def f(x):
        safe = jnp.where(x > 0, jnp.log(x), 0.0)  # <-
        return jnp.sum(safe)

    return f, (jnp.array([0.0, 2.0]),)


@show("sqrt_at_zero")
def a_distance():
    def f(x):
        r = jnp.sqrt(jnp.sum((x - 1) ** 2))  # <-
        return r * 2

    return f, (jnp.ones(3),)


@show("div_zero")
def a_ratio():
    def f(x):
        q = jnp.sum(1.0 / x)  # <-
        return q

    return f, (jnp.array([0.0, 1.0]),)


@show("host_callback")
def a_numpy_function():
    def f(x):
        y = jax.pure_callback(np.cumsum, jax.ShapeDtypeStruct(x.shape, x.dtype), x)  # <-
        return jnp.sum(y)

    return f, (jnp.ones(3),)


@show("custom_backward_wrong")
def a_custom_vjp():
    @jax.custom_vjp
    def cube(x):
        return x**3

    def forward(x):
        return cube(x), x

    def backward(x, g):
        return (2 * x**2 * g,)  # <-

    cube.defvjp(forward, backward)
    return lambda x: jnp.sum(cube(x)), (jnp.array([1.5, 2.5]),)


@show("tie_subgradient")
def two_equal():
    def f(x):
        return jnp.maximum(x[0], x[1]) * 2  # <-

    return f, (jnp.array([1.0, 1.0]),)


@show("exploding_product")
def a_growing_loop():
    def f(w):
        h = jnp.ones(2)
        for _ in range(30):
            h = w @ h  # <-
        return jnp.sum(h)

    return f, (3.0 * jnp.ones((2, 2)),)


@show("unused_input")
def nothing_of_it():
    def f(x):
        jnp.sum(x)  # <-
        return jnp.sum(jnp.ones(2))

    return f, (jnp.ones(2),)


@show("item")
def a_python_float():
    def f(x):
        scale = float(jnp.sum(x))  # <-
        return scale * jnp.sum(jnp.ones(2))

    return f, (jnp.ones(2),)


@show("none")
def attention():
    def f(x):
        mask = jnp.tril(jnp.ones((3, 3)))
        scores = jnp.where(mask > 0, x @ x.T, -1e9)
        return jnp.sum((jax.nn.softmax(scores) @ x) ** 2)

    return f, (jnp.arange(6.0).reshape(3, 2) / 6,)


@show("none")
def a_straight_through():
    def f(x):
        q = x + lax.stop_gradient(jnp.round(x) - x)
        return jnp.sum(q * 2)

    return f, (jnp.array([0.2, 1.7]),)


@show("none")
def a_scan():
    def f(w):
        def step(h, x):
            h = jnp.tanh(w @ h + x)
            return h, h

        _, hs = lax.scan(step, jnp.ones(2), jnp.ones((4, 2)))
        return jnp.sum(hs**2)

    return f, (jnp.eye(2) * 0.5,)


@show("none")
def a_network():
    def f(params):
        h = jnp.ones((4, 3))
        for w, b in params:
            h = jax.nn.gelu(h @ w + b)
        return jnp.mean((h - 1) ** 2)

    def g(w):
        return f([(w, jnp.zeros(3)), (w.T, jnp.ones(3))])

    return g, (jnp.arange(9.0).reshape(3, 3) / 9,)


@show("none")
def jitted_and_checkpointed():
    @partial(jax.jit, static_argnums=1)
    def block(x, k):
        return jnp.sin(x) * k

    def f(x):
        return jnp.sum(jax.checkpoint(lambda v: block(v, 2))(x))

    return f, (jnp.array([0.1, 0.2]),)


@show("none")
def log_sum_exp():
    def f(x):
        return jax.scipy.special.logsumexp(x) + jnp.sum(jax.nn.softplus(x))

    return f, (jnp.array([0.1, 0.2, 0.7]),)


# ---------------------------------------------------------------- inside a loop


@show("stop_gradient")
def a_state_cut_inside_a_scan():
    def f(h0):
        def step(h, _):
            h = lax.stop_gradient(h)  # <-
            return jnp.tanh(h * 2), h

        return jnp.sum(lax.scan(step, h0, None, length=4)[0])

    return f, (jnp.ones(2),)


@show("sqrt_at_zero")
def a_root_inside_a_scan():
    def f(h0):
        def step(h, x):
            return h * 0.5 + x * jnp.sqrt(h * 0.0), None  # <-

        return jnp.sum(lax.scan(step, h0, jnp.arange(5.0))[0])

    return f, (jnp.ones(2),)


@show("vanishing_chain")
def a_state_that_shrinks_inside_a_scan():
    def f(h0):
        def step(h, _):
            return jnp.tanh(h * 0.03), h  # <-

        return jnp.sum(lax.scan(step, h0, None, length=30)[0])

    return f, (jnp.ones(2),)
