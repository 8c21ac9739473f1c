"""A function that returns gradients is watched as it is, and inside `jit` whenever the compiled function runs."""

from __future__ import annotations

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import wrt


def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jnp.mean((jnp.tanh(x @ params["a"]) @ params["b"]) ** 2)


PARAMS = {"a": jnp.ones((3, 4)), "b": jnp.full((4, 1), 0.5)}
X = jnp.arange(6.0).reshape(2, 3) / 6


@pytest.mark.parametrize("derive", [jax.grad, jax.value_and_grad])
@pytest.mark.parametrize("compiled", ["outside", "inside", "not at all"])
def test_gradients_are_seen_however_they_are_compiled(derive, compiled: str) -> None:
    with wrt.watch(PARAMS, every=2) as w:
        grad = w.around(jax.jit(derive(loss)) if compiled == "inside" else derive(loss))
        step = jax.jit(lambda p, x: grad(p, x)) if compiled == "outside" else grad
        for _ in range(3):
            step(PARAMS, X)
    assert [step for step, _ in w.history] == [0, 2]
    expected = jax.grad(loss)(PARAMS, X)
    for name, gradient in expected.items():
        assert w.latest[name].max == pytest.approx(float(jnp.abs(gradient).max()), rel=1e-6)


def test_a_compiled_step_goes_on_after_the_watch_has_ended() -> None:
    with wrt.watch(PARAMS, every=1) as w:
        step = jax.jit(w.around(jax.grad(loss)))
        step(PARAMS, X)
    step(PARAMS, X)
    jax.effects_barrier()
    assert w.step == 1


def test_an_equinox_model() -> None:
    model = equinox.nn.MLP(3, 1, 4, 1, key=jax.random.key(0))
    objective = lambda model, x: jnp.mean(jax.vmap(model)(x) ** 2)
    with wrt.watch(model, every=1) as w:
        step = equinox.filter_jit(w.around(equinox.filter_value_and_grad(objective)))
        _, gradients = step(model, X)
    np.testing.assert_allclose(w.latest["layers[0].weight"].max, jnp.abs(gradients.layers[0].weight).max(), rtol=1e-6)


def test_an_nnx_model() -> None:
    model = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
    with wrt.watch(model, every=1) as w:
        gradients = w.around(nnx.grad(lambda model: jnp.mean(model(X) ** 2)))(model)
    assert w.latest["kernel"].max == pytest.approx(float(jnp.abs(gradients["kernel"][...]).max()))
