"""More failures in JAX, and programs that look like them: callbacks, rules by hand, loops, masks, target networks."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.why._programs import Programs

programs = Programs()


def ramp(n=3):
    return jnp.linspace(0.5, 1.5, n)


@programs.show("custom_backward_wrong")
def a_vjp_with_a_wrong_factor():
    @jax.custom_vjp
    def cube(x):
        return x**3

    def fwd(x):
        return cube(x), x

    def bwd(x, g):
        return (2 * x**2 * g,)

    cube.defvjp(fwd, bwd)
    return (lambda x: cube(x).sum()), (ramp(),)


@programs.show("host_callback")
def pure_callback_in_a_layer():
    def f(x):
        h = jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), jnp.float32), x)  # <-
        return h.sum()

    return f, (ramp(),)


@programs.show("no_reverse_rule")
def a_dynamic_loop():
    def f(x):
        return jax.lax.fori_loop(0, x.astype(jnp.int32)[0] + 3, lambda k, h: h * 1.1, x).sum()  # <-

    return f, (ramp(),)


@programs.show("saturated")
def softmax_of_huge_logits():
    def f(x):
        p = jax.nn.softmax(x * 1e4)  # <-
        return jnp.dot(p, jnp.arange(3.0))

    return f, (ramp(),)


@programs.show("div_zero")
def mean_of_nothing():
    def f(x):
        m = x > 9
        return jnp.sum(jnp.where(m, x, 0.0) * x) / jnp.sum(x * 0)  # <-

    return f, (ramp(),)


@programs.show("domain_edge")
def arccos_of_one():
    def f(x):
        return jnp.arccos(x / x).sum()  # <-

    return f, (ramp(),)


@programs.show("integer_cast")
def bucket_by_floor():
    table = jnp.arange(9.0)

    def f(x):
        k = jnp.floor(x * 4).astype(jnp.int32)  # <-
        return table[k].sum()

    return f, (ramp(),)


@programs.show("masked_softmax_row")
def all_masked():
    def f(x):
        s = jnp.where(jnp.zeros(3, bool), x, -jnp.inf)
        return jnp.dot(jax.nn.softmax(s), jnp.arange(3.0)) + x.sum() * 0  # <-

    return f, (ramp(),)


@programs.show("unused_input")
def second_argument_only():
    def f(x, y):
        return (y**2).sum()

    return f, (ramp(), ramp())


@programs.show("stop_gradient")
def target_network():
    def q(w, s):
        return jnp.tanh(s @ w)

    def f(w):
        target = 1.0 + 0.9 * jax.lax.stop_gradient(q(w, jnp.ones((2, 3)))).max()  # <-
        return (target - 0.5) ** 2

    return f, (jnp.ones((3, 2)) * 0.1,)


@programs.show("none")
def td_loss():
    def q(w, s):
        return jnp.tanh(s @ w)

    def f(w):
        target = 1.0 + 0.9 * jax.lax.stop_gradient(q(w, jnp.ones((2, 3)))).max()
        return jnp.mean((q(w, 2 * jnp.ones((2, 3))) - target) ** 2)

    return f, (jnp.ones((3, 2)) * 0.1,)


@programs.show("none")
def vmap_and_jit():
    @jax.jit
    def one(x):
        return jnp.sin(x) * jnp.exp(-x)

    return (lambda x: jax.vmap(one)(x).sum()), (ramp(),)


@programs.show("none")
def a_right_custom_vjp():
    @jax.custom_vjp
    def sq(x):
        return x**2

    sq.defvjp(lambda x: (sq(x), x), lambda x, g: (2 * x * g,))
    return (lambda x: sq(x).sum()), (ramp(),)


@programs.show("none")
def logsumexp_loss():
    return (lambda x: jax.nn.logsumexp(x) - x[0]), (ramp(),)


@programs.show("none")
def cond_branch():
    def f(x):
        return jax.lax.cond(x[0] > 0, lambda v: (v**2).sum(), lambda v: v.sum(), x)

    return f, (ramp(),)


@programs.show("none")
def random_dropout():
    def f(x):
        keep = jax.random.bernoulli(jax.random.key(0), 0.7, (3,))
        return jnp.sum(jnp.where(keep, x / 0.7, 0.0) ** 2)

    return f, (ramp(),)


@programs.show("broadcast")
def a_column_against_a_row():
    def f(prediction, target):
        return ((prediction - target) ** 2).mean()  # <-

    return f, (ramp()[:, None], ramp())


@programs.show("none")
def every_point_against_every_other():
    def f(points):
        return ((points[:, None] - points[None, :]) ** 2).mean()

    return f, (ramp(),)
