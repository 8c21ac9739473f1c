"""A question about a run that narrows goes through its narrowest array, and is proven there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from tests.jax._narrow import LAYERS, WIDE, narrow, narrow_jacobian
from tests.jax._wrong_batch import doubled
from wrt import d
from wrt._backends.jax.arrays import JaxArrays


@pytest.fixture(autouse=True)
def in_double_precision(planned_from_the_start):
    with jax.enable_x64(True):
        yield


@pytest.fixture
def x():
    return jnp.asarray(np.random.default_rng(0).normal(size=WIDE))


def asked(f, x):
    t = wrt.trace(f, x)
    return t, d(t.output) / d(t.inputs[0])


def test_answers_go_through_the_narrowest_array(x):
    _, J = asked(narrow, x)
    np.testing.assert_allclose(J.value, narrow_jacobian(x), rtol=1e-10, atol=1e-13)
    told = J.explain()
    assert told.strategy == "cut"
    assert told.passes == 9
    assert told.because == "everything from x to y passes 4 numbers; 8 passes instead of 300"
    assert J.certificate


def test_another_point_takes_the_same_way(x):
    for point in (x, 2 * x):
        _, J = asked(narrow, point)
        np.testing.assert_allclose(J.value, narrow_jacobian(point), rtol=1e-10, atol=1e-13)
        assert J.explain().strategy == "cut"


def test_a_product_that_is_off_is_found_and_put_right(x, monkeypatch):
    monkeypatch.setattr(JaxArrays, "matmul", lambda self, a, b: jnp.matmul(a, b).at[7, 1].add(1e-4))
    monkeypatch.setattr(JaxArrays, "contract", lambda self, how, a, b: jnp.einsum(how, a, b).at[7, 1].add(1e-4))
    _, J = asked(narrow, x)
    np.testing.assert_allclose(J.value, narrow_jacobian(x), rtol=1e-10, atol=1e-13)
    assert J.certificate


def test_where_nothing_can_be_pushed_above_the_cut_the_rows_answer(x):
    f = lambda x: LAYERS[3] @ (LAYERS[2] @ doubled(LAYERS[1] @ (LAYERS[0] @ x)))
    _, J = asked(f, x)
    np.testing.assert_allclose(J.value, 2 * LAYERS[3] @ LAYERS[2] @ LAYERS[1] @ LAYERS[0], rtol=1e-10, atol=1e-13)


def test_numbers_that_are_not_finite_are_the_engine_s(x):
    f = lambda x: LAYERS[3] @ (LAYERS[2] @ jnp.sqrt(LAYERS[1] @ (LAYERS[0] @ x)))
    _, J = asked(f, jnp.zeros(WIDE))
    assert not np.isfinite(J.value).any()


def test_samples_that_narrow_one_by_one_share_their_passes_instead():
    into, out_of = LAYERS[1][:, :12], LAYERS[2][:12]
    f = lambda x: jnp.tanh(x @ into.T) @ out_of.T
    x = jnp.asarray(np.random.default_rng(0).normal(size=(20, 12)))
    _, J = asked(f, x)
    np.testing.assert_allclose(J.value, jax.jacrev(f)(x), rtol=1e-9, atol=1e-12)
    assert J.explain().strategy == "structured"


def test_inside_a_transformation_it_is_a_constant(x):
    t, J = asked(narrow, x)
    inside = jax.jit(lambda a: (d(t.output) / d(t.inputs[0])).value * a)(2.0)
    np.testing.assert_allclose(inside, 2 * narrow_jacobian(x), rtol=1e-10, atol=1e-13)
    slope = jax.grad(lambda a: ((d(t.output) / d(t.inputs[0])).value * a).sum())(2.0)
    np.testing.assert_allclose(slope, narrow_jacobian(x).sum(), rtol=1e-9)
