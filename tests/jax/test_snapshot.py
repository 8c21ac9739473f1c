"""The snapshot fixture can fail on JAX's arrays and settings."""

import equinox
import jax
import jax.numpy as jnp
import pytest

from tests._snapshot import Changed, facts_of, unchanged


def test_a_donated_array_is_seen() -> None:
    x = jnp.ones(3)
    with pytest.raises(Changed, match=r"x\.is_deleted\(\): was False, is True"), unchanged(x=x):
        x.delete()


def test_a_setting_left_changed_is_seen() -> None:
    before = jax.config.jax_enable_x64
    with pytest.raises(Changed, match="jax: jax_enable_x64"), unchanged():
        jax.config.update("jax_enable_x64", not before)
    jax.config.update("jax_enable_x64", before)


def test_a_module_is_watched_leaf_by_leaf() -> None:
    model = equinox.nn.Linear(2, 3, key=jax.random.key(0))
    assert {"model.weight values", "model.bias values"} <= set(facts_of(model=model))


def test_a_gradient_changes_nothing() -> None:
    x = jnp.ones(3, jnp.bfloat16)
    with unchanged(x, several=[x, {"x": x}]):
        jax.jit(jax.grad(lambda x: (x**2).sum()))(x)
