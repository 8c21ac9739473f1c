"""Failures that people asked about in JAX, and healthy programs that look like them.

One program each, as short as it still fails; where the question stands is said in its first lines.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.why._programs import Programs

programs = Programs()
show = programs.show


@show("where_nan_trap")
def where_sqrt():
    """where(x < 1, x, sqrt(x)) at 0.

    jax-ml/jax#5798
    """

    def f(x):
        return jnp.where(x < 1.0, x, jnp.sqrt(x))  # <-

    return f, (0.0,)


@show("norm_at_zero", "sqrt_at_zero", "domain_edge")
def norm_at_origin():
    """Cloth spring at rest: norm of a zero vector.

    jax-ml/jax#3058
    """

    def energy(pos):
        d = pos[1] - pos[0]
        length = jnp.linalg.norm(d)  # <-
        return 0.5 * (length - 1.0) ** 2

    return energy, (jnp.zeros((2, 3)),)


@show("sqrt_at_zero")
def std_constant():
    """std of a constant vector.

    jax-ml/jax#11716
    """

    def spread(x):
        s = jnp.std(x)  # <-
        return s * 2.0

    return spread, (jnp.array([1.0, 1.0, 1.0]),)


@show("domain_edge")
def arccos_fidelity():
    """Angle between equal distributions: arccos(1).

    jax-ml/jax#15798
    """

    def loss(q):
        p = jnp.array([0.6, 0.8])
        c = jnp.minimum(jnp.vdot(p, q / jnp.sqrt(jnp.vdot(q, q))), 1.0)
        return jnp.arccos(c)  # <-

    return loss, (jnp.array([3.0, 4.0]),)


@show("domain_edge")
def pow_zero():
    """x ** 0.3 at 0.

    jax-ml/jax#7440
    """

    def g(x):
        y = x ** 0.3  # <-
        return jnp.sum(y)

    return g, (jnp.array([0.0, 1.0]),)


@show("log_zero", "domain_edge")
def entropy_log_zero():
    """p * log(p) at p = 0.

    OpenBMB/ModelCenter#14 (same formula in jax)
    """

    def h(p):
        return -jnp.sum(p * jnp.log(p))  # <-

    return h, (jnp.array([0.0, 0.5, 0.5]),)


@show("int_input", hint=True)
def integer_argument():
    """grad of tanh at the integer 2.

    jax-ml/jax#2663
    """
    return jnp.tanh, (2,)


@show("no_reverse_rule")
def while_loop_reverse():
    """Reverse mode through a while_loop.

    jax-ml/jax#2956
    """

    def newton(a):
        def cond(s):
            return jnp.abs(s * s - a) > 1e-4

        def body(s):
            return 0.5 * (s + a / s)
        return lax.while_loop(cond, body, 1.0 + 0.0 * a)  # <-

    return newton, (2.0,)


@show("host_callback")
def pure_callback_no_jvp():
    """A numpy function called through pure_callback.

    jax-ml/jax#16650
    """

    def forward(x):
        y = jax.pure_callback(lambda a: np.sin(a), jax.ShapeDtypeStruct(x.shape, x.dtype), x)  # <-
        return jnp.sum(y * x)

    return forward, (jnp.array([1.0, 2.0]),)


@show("argmax")
def argmax_loss():
    """Zero gradients after argmax.

    google-deepmind/dm-haiku#442
    """

    def loss(w):
        logits = jnp.array([[1.0, 2.0], [3.0, -1.0]]) @ w
        pred = jnp.argmax(logits, axis=1)  # <-
        return jnp.mean((pred - jnp.array([1.0, 0.0])) ** 2)

    return loss, (jnp.array([[0.1, 0.9], [0.4, 0.2]]),)


@show("sort_indices")
def argsort_rank():
    """A rank loss through argsort.

    elixir-nx/nx#450 (argsort has zero gradient, as in jax)
    """

    def rank_loss(x):
        r = jnp.argsort(jnp.argsort(x)).astype(jnp.float32)  # <-
        return jnp.sum((r - jnp.array([2.0, 0.0, 1.0])) ** 2)

    return rank_loss, (jnp.array([0.3, 0.1, 0.7]),)


@show("round")
def round_quantise():
    """jnp.round in a quantiser.

    https://discuss.pytorch.org/t/torch-round-gradient/28628 (same question; jax code)
    """

    def q(w):
        z = jnp.round(w / 0.1) * 0.1  # <-
        return jnp.sum((z - 0.2) ** 2)

    return q, (jnp.array([0.12, 0.58]),)


@show("integer_cast")
def astype_int_bins():
    """astype(int) in the middle.

    tensorflow/tensorflow#47083 (same mistake in jax)
    """

    def bins(x):
        k = (x * 4).astype(jnp.int32)  # <-
        return jnp.sum(k * 1.5)

    return bins, (jnp.array([0.3, 0.8]),)


@show("sign")
def sign_step():
    """jnp.sign as a decision.

    elixir-nx/nx#450 (sign has zero gradient)
    """

    def step(x):
        s = jnp.sign(x - 0.5)  # <-
        return jnp.sum(s * jnp.array([1.0, 2.0]))

    return step, (jnp.array([0.3, 0.8]),)


@show("clamp")
def clip_saturated():
    """clip outside the range.

    pytorch/pytorch#7002 (same question; jax code)
    """

    def c(x):
        y = jnp.clip(x, -1.0, 1.0)  # <-
        return jnp.sum((y - 0.3) ** 2)

    return c, (jnp.array([3.0, -2.0]),)


@show("dead_relu")
def dead_relu():
    """All pre-activations negative.

    tensorflow/tensorflow#56657 (same; jax code)
    """

    def net(w):
        h = jax.nn.relu(jnp.array([1.0, 2.0]) @ w - 10.0)  # <-
        return jnp.sum(h ** 2)

    return net, (jnp.ones((2, 3)),)


@show("inplace_overwrite")
def at_set_overwritten():
    """The only row that depends on x is overwritten."""

    def f(x):
        buf = jnp.zeros((2, 2)).at[0].set(x * 2.0)
        buf = buf.at[0].set(jnp.ones(2))  # <-
        return jnp.sum(buf)

    return f, (jnp.array([1.0, 2.0]),)


@show("unused_input")
def loop_result_dropped():
    """The result of fori_loop is thrown away; the zeros are summed.

    jax-ml/jax#1954
    """

    def rollout(us):
        outs = jnp.zeros(3)

        def step(t, o):
            return o.at[t].set(us[t] * 2.0)
        lax.fori_loop(0, 3, step, outs)  # <-
        return jnp.sum(outs ** 2) + 0.0 * jnp.sum(us)

    return rollout, (jnp.array([1.0, 2.0, 3.0]),)


@show("not_indexed", at=0)
def out_of_bounds_read():
    """An out-of-range index is clamped, so the wrong element gets the gradient.

    https://docs.jax.dev/en/latest/notebooks/Common_Gotchas_in_JAX.html#out-of-bounds-indexing (docs/)
    """

    def pick(x):
        y = x[jnp.array(7)]  # <-
        return y * 3.0

    return pick, (jnp.array([1.0, 2.0, 3.0]),)


@show("custom_backward_wrong")
def custom_jvp_wrong():
    """A custom_jvp with the wrong power.

    jax-ml/jax#3389
    """

    @jax.custom_jvp
    def cube(x):
        return x ** 3

    @cube.defjvp
    def cube_jvp(primals, tangents):
        x, = primals
        dx, = tangents
        return cube(x), 3 * x * dx  # <-

    def f(x):
        return jnp.sum(cube(x))

    return f, (jnp.array([2.0, 3.0]),)


@show("tie_subgradient")
def max_tie():
    """jnp.max at a tie splits the gradient.

    tensorflow/tensorflow#51681 (same; jax code)
    """

    def f(x):
        return jnp.max(x)  # <-

    return f, (jnp.array([0.6, 0.6, 0.3]),)


@show("masked_softmax_row")
def fully_masked_logsumexp():
    """log_softmax over a fully masked row.

    allenai/allennlp#890 (same; jax code)
    """

    def f(x):
        s = x + jnp.where(jnp.array([[True, True], [False, False]]), 0.0, -jnp.inf)
        p = jax.nn.softmax(s, axis=1)  # <-
        return jnp.sum(p[0] * jnp.array([1.0, 2.0]))

    return f, (jnp.ones((2, 2)),)


@show("none")
def double_where():
    """Control: double where.

    control (double where)
    """

    def f(x):
        safe = jnp.where(x > 0, x, 1.0)
        return jnp.sum(jnp.where(x > 0, jnp.sqrt(safe), x))

    return f, (jnp.array([-1.0, 4.0]),)


@show("none")
def stop_gradient_baseline():
    """Control: a stop_gradient baseline beside a live path.

    control
    """

    def f(w):
        v = jnp.dot(w, jnp.array([1.0, 2.0]))
        return (v - lax.stop_gradient(v) * 0.5) ** 2

    return f, (jnp.array([0.5, 0.5]),)


@show("none")
def argmax_gather():
    """Control: the value at the argmax.

    control
    """

    def f(x):
        return x[jnp.argmax(x)] * 2.0

    return f, (jnp.array([1.0, 3.0, 2.0]),)
