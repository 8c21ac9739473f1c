"""Linear algebra on Jacobians in JAX: next to the dense matrix of jax.jacrev."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from wrt import d


def f(x: jax.Array) -> jax.Array:
    weights = jnp.linspace(-1, 1, 30).reshape(6, 5)
    return jnp.tanh(x @ weights.T) * x.sum(1, keepdims=True)


@pytest.fixture
def asked() -> tuple[wrt.Derivative, np.ndarray]:
    x = jnp.linspace(-1, 2, 20).reshape(4, 5)
    t = wrt.trace(f, x)
    return d(t.output) / d(t.inputs[0]), np.asarray(jax.jacrev(f)(x)).reshape(24, 20)


def test_products_spectrum_and_gram(asked: tuple[wrt.Derivative, np.ndarray]) -> None:
    J, truth = asked
    A = J.operator()
    v, u = np.linspace(0, 1, 60).reshape(20, 3), np.linspace(0, 1, 72).reshape(24, 3)
    np.testing.assert_allclose(A @ v, truth @ v, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(A.T @ u, truth.T @ u, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(J.singular_values(2).values, np.linalg.svd(truth)[1][:2], rtol=1e-5)
    np.testing.assert_allclose(J.gram().numpy().reshape(20, 20), truth.T @ truth, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(J.T.gram().diagonal().reshape(-1), np.diag(truth @ truth.T), rtol=1e-4, atol=1e-6)


def test_blocks_steps_and_estimates(asked: tuple[wrt.Derivative, np.ndarray]) -> None:
    J, truth = asked
    blocks = np.stack([truth.reshape(4, 6, 4, 5)[b, :, b] for b in range(4)])
    np.testing.assert_allclose(J.block_diagonal(), blocks, rtol=1e-5, atol=1e-6)
    b = jnp.ones((4, 6))
    step = np.asarray(J.solve(b, damping=0.1).value).reshape(-1)
    expected = np.linalg.solve(truth.T @ truth + 0.01 * np.eye(20), truth.T @ np.ones(24))
    np.testing.assert_allclose(step, expected, rtol=1e-3, atol=1e-4)
    square = J[:, :5]
    assert float(square.estimate_trace()) == pytest.approx(np.trace(truth.reshape(4, 6, 20)[:, :5].reshape(20, 20)), rel=1e-4)


def test_all_parameters_side_by_side() -> None:
    parameters = {"w": jnp.linspace(-1, 1, 6).reshape(2, 3), "b": jnp.ones(2)}

    def model(p: dict[str, jax.Array]) -> jax.Array:
        return jnp.sin(p["w"] @ jnp.ones(3) + p["b"])

    t = wrt.trace(model, parameters)
    J, split = wrt.joined(d(t.output) / d(t.inputs[0]))
    told = jax.jacrev(model)(parameters)
    truth = np.concatenate([np.asarray(told[name]).reshape(2, -1) for name in ("b", "w")], 1)
    np.testing.assert_allclose(J.value, truth, rtol=1e-6)
    assert split(J.value)["w"].shape == (2, 2, 3)


def test_finite_differences_find_a_wrong_rule() -> None:
    @jax.custom_vjp
    def cube(x: jax.Array) -> jax.Array:
        return x**3

    cube.defvjp(lambda x: (x**3, x), lambda x, u: (2 * u * x**2,))
    x = jnp.linspace(0.5, 1.5, 6)
    right = wrt.trace(lambda x: jnp.tanh(x) ** 3, x, values=True)
    wrong = wrt.trace(lambda x: cube(jnp.tanh(x)), x, values=True)
    assert (d(right.output) / d(right.inputs[0])).check()
    assert (d(wrong.output) / d(wrong.inputs[0])).check().verdict == "disagrees"


def test_a_large_answer_is_written_once() -> None:
    n = 4200  # 67 MiB
    x = jnp.linspace(0, 1, n)
    t = wrt.trace(lambda x: jnp.sin(x * x.mean() + x), x)
    J = d(t.output) / d(t.inputs[0])
    found = J.value
    assert J.explain().steps[-1].what
    at, mean = float(x[7]), float(np.mean(np.asarray(x, np.float64)))
    expected = np.cos(at * mean + at) * (at / n + (np.arange(n) == 7) * (1 + mean))
    np.testing.assert_allclose(np.asarray(found[7]), expected, rtol=1e-5)
