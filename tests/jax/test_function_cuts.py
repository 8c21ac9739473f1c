"""A derivative as a function goes through the narrowest arrays on its way, and is proven there as anywhere else."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.jax._narrow import INTO, LAYERS, NARROW, OUT_OF, WIDE, narrow, narrow_jacobian
from tests.jax._points import asked, points
from tests.jax._wrong_batch import doubled
from wrt._backends.jax.arrays import JaxArrays


def in_other_shapes(x):
    h = jnp.sin(INTO @ x.reshape(-1)).reshape(2, 2)
    return jnp.cos(OUT_OF @ h.reshape(-1)).reshape(3, 100)


def two_heads(x):
    """What y needs of x are two arrays of two numbers, neither made from the other."""
    h = jnp.tanh(LAYERS[0] @ x)
    mean, spread = LAYERS[1][:2] @ h, LAYERS[1][2:] @ h
    return LAYERS[3] @ (jnp.sin(LAYERS[2][:, :2] @ mean) * jnp.cos(LAYERS[2][:, 2:] @ spread))


def one_from_the_other(x):
    """Of the two narrow arrays that y needs, the second is made from the first, and from x."""
    h = jnp.tanh(LAYERS[0] @ x)
    first = LAYERS[1][:2] @ h
    second = LAYERS[1][2:] @ h * first
    return LAYERS[3] @ (jnp.sin(LAYERS[2][:, :2] @ first) + jnp.cos(LAYERS[2][:, 2:] @ second))


def looping(x):
    h, _ = lax.scan(lambda h, a: (jnp.tanh(h * a + jnp.roll(h, 1)), None), LAYERS[0] @ x, jnp.arange(1.0, 4.0))
    return LAYERS[3] @ jnp.sin(LAYERS[2] @ (LAYERS[1] @ h))


def narrow_twice(x):
    h = jnp.tanh(OUT_OF @ jnp.tanh(INTO @ x))
    return jnp.sin(OUT_OF @ jnp.tanh(INTO @ h))


PROBLEMS = {
    "cut": (narrow, (WIDE,), 2 * NARROW),
    "other shapes": (in_other_shapes, (WIDE, 1), 2 * NARROW),
    "two heads": (two_heads, (WIDE,), 8),
    "one from the other": (one_from_the_other, (WIDE,), WIDE),
    "loop": (looping, (WIDE,), 2 * NARROW),
    "twice": (narrow_twice, (WIDE,), 4 * NARROW),
}


@pytest.fixture(autouse=True)
def in_double_precision(planned_from_the_start):
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_is_jax_s_own_jacobian_at_every_point(name):
    f, shape, passes = PROBLEMS[name]
    here, one, _ = points(shape)
    jac = asked(f, here).function()
    assert jac.passes <= passes
    expected = jax.jit(jax.jacfwd(f))
    for point in (here, one):
        np.testing.assert_allclose(jac(point), expected(point), rtol=1e-9, atol=1e-12)
        assert jac.certificate


def test_it_is_the_closed_form():
    here, one, _ = points((WIDE,))
    jac = asked(narrow, here).function()
    np.testing.assert_allclose(jac(one), narrow_jacobian(one), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(jax.jit(jac)(one), narrow_jacobian(one), rtol=1e-10, atol=1e-13)
    assert str(jac) == (
        "Function  shape (300, 300)   8 passes, because everything from x to y passes 4 numbers; 8 passes instead of 300"
    )


def test_it_can_be_mapped_and_differentiated_again():
    here, one, other = points((WIDE,))
    jac = asked(narrow, here).function()
    both = jax.jit(jax.vmap(jac))(jnp.stack([one, other]))
    np.testing.assert_allclose(both[1], narrow_jacobian(other), rtol=1e-10, atol=1e-13)
    curved = lambda jacobian: jax.jit(jax.grad(lambda x: (jacobian(x) ** 3).sum()))(one)
    np.testing.assert_allclose(curved(jac), curved(jax.jacrev(narrow)), rtol=1e-8, atol=1e-11)


def test_a_way_around_the_cut_is_seen():
    def f(x):
        return narrow(x) + jnp.sin(x)

    here, one, _ = points((WIDE,))
    jac = asked(f, here).function()
    np.testing.assert_allclose(jac(one), narrow_jacobian(one) + np.diag(np.cos(one)), rtol=1e-10, atol=1e-13)


def test_samples_with_a_cut_each_share_their_passes_instead():
    def f(x):
        return jnp.tanh(x @ INTO[:, :12].T) @ OUT_OF[:12].T

    here, one, _ = points((20, 12))
    jac = asked(f, here).function()
    assert jac.passes <= 12
    assert jac.sparse(one).nse == 20 * 12 * 12
    np.testing.assert_allclose(jac(one), jax.jacrev(f)(one), rtol=1e-9, atol=1e-12)


def test_a_product_that_is_off_is_found_and_made_line_by_line(monkeypatch):
    here, one, _ = points((WIDE,))
    jac = asked(narrow, here).function()
    monkeypatch.setattr(JaxArrays, "matmul", lambda self, a, b: jnp.matmul(a, b).at[7, 1].add(1e-4))
    monkeypatch.setattr(JaxArrays, "contract", lambda self, how, a, b: jnp.einsum(how, a, b).at[7, 1].add(1e-4))
    np.testing.assert_allclose(jac(one), narrow_jacobian(one), rtol=1e-10, atol=1e-13)
    assert jac.certificate


def test_a_wrong_batching_rule_is_found():
    here, one, _ = points((WIDE,))
    jac = asked(lambda x: LAYERS[3] @ (LAYERS[2] @ doubled(LAYERS[1] @ (LAYERS[0] @ x))), here).function()
    assert jac.passes == 2 * NARROW
    np.testing.assert_allclose(jac(one), 2 * LAYERS[3] @ LAYERS[2] @ LAYERS[1] @ LAYERS[0], rtol=1e-9, atol=1e-12)
    assert jac.certificate


def test_what_has_only_a_backward_rule_above_the_cut_is_pushed_by_its_transpose():
    @jax.custom_vjp
    def only_backwards(x):
        return jnp.sin(x)

    only_backwards.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jnp.cos(x) * g,))
    f = lambda x: only_backwards(narrow(x))
    here, one, _ = points((WIDE,))
    jac = asked(f, here).function()
    assert jac.passes == 2 * NARROW
    np.testing.assert_allclose(jac(one), np.cos(narrow(one))[:, None] * narrow_jacobian(one), rtol=1e-9, atol=1e-12)


def test_numbers_that_are_not_finite_are_the_engine_s():
    def f(x):
        return LAYERS[3] @ (LAYERS[2] @ jnp.sqrt(LAYERS[1] @ (LAYERS[0] @ x)))

    here = jnp.asarray(np.linalg.pinv(LAYERS[1] @ LAYERS[0]) @ np.ones(NARROW))
    jac = asked(f, here).function()
    at_zero = jnp.zeros(WIDE)
    np.testing.assert_array_equal(np.isfinite(jac(at_zero)), np.isfinite(jax.jacrev(f)(at_zero)))
    assert not jac.certificate
    np.testing.assert_allclose(jac(here), jax.jacrev(f)(here), rtol=1e-9)
    assert jac.certificate
