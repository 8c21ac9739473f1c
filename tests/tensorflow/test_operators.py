"""Linear algebra on Jacobians in TensorFlow: next to the dense matrix of tape.jacobian."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt import d


def f(x: Any) -> Any:
    weights = tf.reshape(tf.linspace(-1.0, 1.0, 30), (6, 5))
    return tf.tanh(x @ tf.transpose(weights)) * tf.reduce_sum(x, 1, keepdims=True)


@pytest.fixture
def asked() -> tuple[wrt.Derivative, np.ndarray]:
    x = tf.reshape(tf.linspace(-1.0, 2.0, 20), (4, 5))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    truth = tape.jacobian(y, x).numpy().reshape(24, 20)
    t = wrt.trace(f, x)
    return d(t.output) / d(t.inputs[0]), truth


def test_products_spectrum_and_gram(asked: tuple[wrt.Derivative, np.ndarray]) -> None:
    J, truth = asked
    A = J.operator()
    v, u = np.linspace(0, 1, 60).reshape(20, 3), np.linspace(0, 1, 72).reshape(24, 3)
    np.testing.assert_allclose(A @ v, truth @ v, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(A.T @ u, truth.T @ u, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(J.singular_values(2).values, np.linalg.svd(truth)[1][:2], rtol=1e-5)
    np.testing.assert_allclose(J.gram().numpy().reshape(20, 20), truth.T @ truth, rtol=1e-4, atol=1e-5)


def test_blocks_and_steps(asked: tuple[wrt.Derivative, np.ndarray]) -> None:
    J, truth = asked
    blocks = np.stack([truth.reshape(4, 6, 4, 5)[b, :, b] for b in range(4)])
    np.testing.assert_allclose(J.block_diagonal(), blocks, rtol=1e-5, atol=1e-6)
    step = np.asarray(J.solve(tf.ones((4, 6)), damping=0.1).value).reshape(-1)
    expected = np.linalg.solve(truth.T @ truth + 0.01 * np.eye(20), truth.T @ np.ones(24))
    np.testing.assert_allclose(step, expected, rtol=1e-3, atol=1e-4)


def test_finite_differences_find_a_wrong_rule() -> None:
    @tf.custom_gradient
    def cube(x: Any) -> Any:
        return x**3, lambda u: 2 * u * x**2

    x = tf.linspace(0.5, 1.5, 6)
    right = wrt.trace(lambda x: tf.tanh(x) ** 3, x, values=True)
    wrong = wrt.trace(lambda x: cube(tf.tanh(x)), x, values=True)
    assert (d(right.output) / d(right.inputs[0])).check()
    assert (d(wrong.output) / d(wrong.inputs[0])).check().verdict == "disagrees"


def test_updates_are_run_again() -> None:
    def filled(x: Any) -> Any:
        h = tf.tensor_scatter_nd_update(tf.zeros(5), [[0]], x[:1])
        for k in range(1, 5):
            h = tf.tensor_scatter_nd_update(h, [[k]], [tf.sin(h[k - 1]) + x[k % 3]])
        return h

    t = wrt.trace(filled, tf.constant([0.3, -0.2, 0.9]))
    assert (d(t.output) / d(t.inputs[0])).check()
