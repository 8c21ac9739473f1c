"""Dependence tests, steering, receptive fields, gradient flow and saliency in JAX: the same words, the same answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from wrt import saliency
from wrt.testing import Failed, assert_all_parameters_learn, assert_batch_independent, assert_causal

KEY = jax.random.PRNGKey(0)
W1, W2, W3 = (0.3 * jax.random.normal(KEY, shape) for shape in ((20, 16), (16, 12), (12, 5)))
TABLE = jax.random.normal(KEY, (30, 4))


def net(x):
    h = jnp.tanh(x @ W1)
    fc2 = jnp.tanh(h @ W2)
    return fc2 @ W3


def language(tokens, reach=0):
    h = TABLE[tokens]
    length = h.shape[1]
    scores = jnp.where(jnp.tril(jnp.ones((length, length)), reach) > 0, h @ h.transpose(0, 2, 1), -1e9)
    return jax.nn.softmax(scores, -1) @ h


@pytest.fixture
def x():
    return jax.random.normal(KEY, (2, 20))


def test_a_hidden_unit_rises(x) -> None:
    unit = lambda x: float(jnp.tanh(jnp.tanh(x @ W1) @ W2)[0, 10])
    t = wrt.trace(net, x)
    for steps in (1, 6):
        moved = wrt.steer(net, x, toward=t["fc2"][0, 10], eps=0.05, steps=steps)
        assert moved
        assert unit(moved.input) > unit(x)
        assert moved.after == pytest.approx(unit(moved.input), rel=1e-5)


def test_causality_through_the_embedding() -> None:
    tokens = jnp.array([[1, 2, 3, 4, 5, 6]])
    assert assert_causal(language, tokens)
    with pytest.raises(Failed, match="output position 0 depends on input position 1"):
        assert_causal(lambda tokens: language(tokens, 1), tokens)


def test_a_leak_of_a_millionth_is_found() -> None:
    def leaky(x):
        return jnp.cumsum(x, 1).at[:, 3].add(1e-6 * x[:, 7])

    with pytest.raises(Failed) as caught:
        assert_causal(leaky, jax.random.normal(KEY, (2, 9, 3)))
    assert (caught.value.output[1], caught.value.input[1]) == (3, 7)


def test_batches(x) -> None:
    assert assert_batch_independent(net, x)
    with pytest.raises(Failed, match="depends on input sample"):
        assert_batch_independent(lambda x: x - x.mean(0), x)


def test_the_field_of_a_convolution_and_a_pool() -> None:
    kernel = jax.random.normal(KEY, (3, 3, 1, 2))

    def stack(x):
        h = jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    assert wrt.receptive_field(stack, jnp.zeros((1, 16, 16, 1)), (3, 3)).box == ((6, 10), (6, 10))


def test_flow_equals_jax_grad(x) -> None:
    def loss(params, x):
        h = jnp.tanh(x @ params["a"])
        return ((h @ params["b"]) ** 2).mean()

    params = {"a": W1, "b": W2}
    t = wrt.trace(loss, params, x)
    seen = wrt.flow(t.output, t.inputs[0])
    grads = jax.grad(loss)(params, x)
    for name in params:
        assert seen[name].max == pytest.approx(float(jnp.abs(grads[name]).max()), rel=1e-5)
    assert seen["h"].kind == "feature map"
    assert assert_all_parameters_learn(t.output, t.inputs[0])
    with wrt.watch(params, every=2) as w:
        for _ in range(3):
            w(grads)
    assert len(w.history) == 2


def test_saliency_equals_jax_grad(x) -> None:
    np.testing.assert_allclose(saliency.gradient(net, x, (0, 1)), jax.grad(lambda x: net(x)[0, 1])(x), rtol=1e-5)
    attributed = saliency.integrated_gradients(net, x, (0, 1))
    assert float(attributed.sum()) == pytest.approx(float((net(x) - net(x * 0))[0, 1]), abs=1e-5)
    assert saliency.smooth_grad(net, x, (0, 1), samples=3).shape == x.shape
