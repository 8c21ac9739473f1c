"""What each kind of operation says of its elements holds every nonzero of the Jacobian, and no more than it must."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from wrt import d
from wrt._backends.jax.reach import RULES, rule


def convolved(x, **how):
    kernel = jnp.asarray(np.random.default_rng(3).uniform(0.5, 1.5, (4, x.shape[0] // how.get("feature_group_count", 1), 3, 2)))
    return jax.lax.conv_general_dilated(x[None], kernel, how.pop("window_strides", (1, 1)), how.pop("padding", "SAME"), **how)[0]


def last_channel(x):
    kernel = jnp.asarray(np.random.default_rng(3).uniform(0.5, 1.5, (2, 3, 2)))
    return jax.lax.conv_general_dilated(x[None], kernel, (2,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"))


EDGES = np.array([[0, 1, 2, 4, 5, 0], [1, 3, 3, 0, 4, 2]])
OTHER = np.random.default_rng(5).uniform(0.5, 1.5, (4, 3))
CASES = {
    "elementwise": ((5,), lambda x: jnp.exp(x) * jnp.sin(x) + 2 * x**3),
    "a number for all": ((5,), lambda x: x * x[2]),
    "slice": ((9,), lambda x: x[1:8:3]),
    "slices in two axes": ((4, 6), lambda x: x[1:, ::2] * x[:-1, 1::2]),
    "stencil": ((8,), lambda x: jnp.concatenate([x[:1], x[2:] - 2 * x[1:-1] * x[:-2], x[-1:]])),
    "roll": ((3, 5), lambda x: jnp.roll(x, 1, 0) + jnp.roll(x, -2, 1)),
    "stack": ((2, 4), lambda x: jnp.stack([x[0] * x[1], x[1]], axis=1)),
    "split": ((6,), lambda x: jnp.split(x, [2])[1] ** 2),
    "transpose": ((2, 3, 4), lambda x: x.transpose(2, 0, 1) ** 2),
    "reshape": ((4, 6), lambda x: (x.reshape(2, 12) ** 2)[:, None]),
    "flip": ((4, 3), lambda x: jnp.flip(x, 1) * x),
    "pad": ((4,), lambda x: jax.lax.pad(x, 0.0, [(1, 2, 1)])),
    "cut off by a negative pad": ((6,), lambda x: jax.lax.pad(x, 0.0, [(-1, -2, 0)])),
    "broadcast": ((3, 1), lambda x: jnp.broadcast_to(x, (2, 3, 4)) * 2.0),
    "sum": ((3, 4), lambda x: x.sum(1)),
    "largest": ((3, 4), lambda x: jnp.broadcast_to(x.sum(0), (3, 4)) * x),
    "norm of rows": ((3, 4), lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True)),
    "softmax of rows": ((3, 4), lambda x: jax.nn.softmax(x, axis=1)),
    "cumsum": ((5,), jnp.cumsum),
    "cumsum from the end": ((2, 5), lambda x: jax.lax.cumsum(x, axis=1, reverse=True)),
    "matrix from the right": ((5, 4), lambda x: jnp.tanh(x @ OTHER)),
    "matrix from the left": ((3, 5), lambda x: OTHER @ x),
    "batched matrices": ((2, 3, 4), lambda x: jnp.einsum("bij,bkj->bik", x, x)),
    "diagonal of axes": ((2, 3, 4), lambda x: jnp.einsum("bij,bij->jb", x, x**2)),
    "relu, a derivative of its own": ((2, 5), lambda x: jax.nn.relu(x - 0.1)),
    "silu inside jit": ((6,), jax.jit(lambda x: jax.nn.silu(x)[1:])),
    "where": ((5,), lambda x: jnp.where(jnp.arange(5) > 2, x, x**2)),
    "gather": ((6,), lambda x: x[jnp.array([4, 1, 1])] ** 2),
    "gather of rows": ((5, 3), lambda x: x[jnp.array([4, 0, 2]), 1:]),
    "gather beyond the edge": ((4,), lambda x: jnp.take(x, jnp.array([1, 9]), mode="fill", fill_value=0.0)),
    "graph": ((6,), lambda x: jax.ops.segment_sum(x[EDGES[0]] * x[EDGES[1]], EDGES[1], 6)),
    "rows of a graph": ((6, 2), lambda x: jax.ops.segment_sum(jnp.sin(x[EDGES[0]]), EDGES[1], 6)),
    "set": ((6,), lambda x: x.at[jnp.array([1, 4])].set(x[:2] ** 2)),
    "set a block": ((4, 5), lambda x: jnp.sin(x).at[1:3, 2:].set(x[:2, :3] ** 2)),
    "slice from a number": ((7,), lambda x: jax.lax.dynamic_slice(x, (jnp.array(3),), (2,)) ** 2),
    "update from a number": ((7,), lambda x: jax.lax.dynamic_update_slice(x, x[:2] ** 2, (jnp.array(9),))),
    "convolution": ((3, 6, 5), convolved),
    "strides": ((3, 7, 6), lambda x: convolved(x, window_strides=(2, 3), padding=((1, 0), (2, 1)))),
    "dilated": ((3, 7, 6), lambda x: convolved(x, rhs_dilation=(2, 1), lhs_dilation=(1, 2), padding=((1, 1), (0, 2)))),
    "groups": ((4, 5, 4), lambda x: convolved(x, feature_group_count=2)),
    "channels last": ((7, 3), last_channel),
}


def point(shape):
    return jnp.asarray(np.random.default_rng(0).uniform(0.5, 1.5, shape))


def told(f, shape):
    t = wrt.trace(f, point(shape))
    y, x = t._one.output, t._one.inputs[0]
    return t._one.engine(y, (x,)).reach(np.arange(y.size))


@pytest.fixture(scope="module")
def jacobians():
    """All of them from one compiled program."""
    with jax.enable_x64(True):
        points = {name: point(shape) for name, (shape, _) in CASES.items()}
        return jax.jit(lambda points: {name: jax.jacrev(f)(points[name]) for name, (_, f) in CASES.items()})(points)


@pytest.mark.parametrize("name", CASES)
def test_the_pattern_is_that_of_the_jacobian(name, jacobians):
    shape, f = CASES[name]
    with jax.enable_x64(True):
        marks = told(f, shape)
    assert marks is not None
    np.testing.assert_array_equal(marks, np.abs(np.asarray(jacobians[name]).reshape(marks.shape)) > 1e-12)


def test_what_is_not_known_is_left_to_the_engine():
    marks = told(lambda x: jnp.sort(x) * x, (5,))
    assert marks is None
    marks = told(lambda x: jax.lax.scan(lambda h, one: (h * one, h), x[0], x)[1], (5,))
    assert marks is None


def test_two_rules_for_one_operation_are_refused():
    assert "slice" in RULES
    with pytest.raises(ValueError, match="two rules for slice"):
        rule("slice")(lambda op: [])


def test_a_kernel_that_is_asked_about_has_no_rule():
    x = jnp.ones((1, 3, 8))
    marks = told(lambda k: jax.lax.conv_general_dilated(x, k, (1,), "SAME"), (2, 3, 3))
    assert marks is None


@pytest.mark.parametrize("n", [4, 120])
def test_elements_that_never_meet_are_zero_also_where_both_ways_are_nan(n):
    """0 x inf in every direction: x / 0 depends on its own x alone."""
    x = jnp.linspace(1.0, 2.0, n)
    t = wrt.trace(lambda x: jnp.roll(2 * x, 1) / jnp.zeros(n), x)
    truth = np.where(np.roll(np.eye(n), -1, 1) > 0, np.inf, 0.0)
    J = d(t.output) / d(t.inputs[0])
    np.testing.assert_array_equal(J.value, truth)
    np.testing.assert_array_equal((d(t.output)[1] / d(t.inputs[0])).value, truth[1])
    np.testing.assert_array_equal((d(t.output)[1:3] / d(t.inputs[0])[::2]).value, truth[1:3, ::2])
    assert J.sparse().nnz == n
    assert "never meet: zero" in str(J.explain())


def test_what_a_derivative_of_the_users_own_says_of_zero_is_left_alone():
    @jax.custom_jvp
    def scaled(x):
        return x / 0.0

    scaled.defjvp(lambda primals, tangents: (scaled(*primals), tangents[0] / 0.0))
    t = wrt.trace(scaled, jnp.ones(4))
    assert np.isnan((d(t.output) / d(t.inputs[0])).value).sum() == 12
