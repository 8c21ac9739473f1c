"""Dependence tests, steering, receptive fields, gradient flow and saliency in TensorFlow, on Keras models."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt import saliency
from wrt.testing import Failed, assert_all_parameters_learn, assert_batch_independent, assert_causal


@pytest.fixture
def model():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(size, activation="tanh", name=name) for name, size in (("fc1", 16), ("fc2", 12))]
    return keras.Sequential([keras.Input((20,)), *layers, keras.layers.Dense(5, name="fc3")])


@pytest.fixture
def x():
    return tf.constant(np.random.default_rng(0).standard_normal((2, 20)), tf.float32)


def language(*, masked: bool):
    keras.utils.set_random_seed(0)
    tokens = keras.Input((None,), dtype="int32")
    h = keras.layers.Embedding(30, 8, name="embed")(tokens)
    attended = keras.layers.MultiHeadAttention(2, 4, name="attend")(h, h, use_causal_mask=masked)
    return keras.Model(tokens, keras.layers.Dense(30, name="head")(h + attended))


def test_a_hidden_unit_rises(model, x) -> None:
    unit = lambda x: float(model.get_layer("fc2")(model.get_layer("fc1")(x))[0, 10])
    t = wrt.trace(model, x)
    for steps in (1, 5):
        moved = wrt.steer(model, x, toward=t["fc2"][0, 10], eps=0.05, steps=steps)
        assert moved
        assert unit(moved.input) > unit(x)


def test_causality_through_the_embedding() -> None:
    tokens = tf.constant([[1, 2, 3, 4, 5, 6]])
    assert assert_causal(language(masked=True), tokens)
    with pytest.raises(Failed, match=r"output position 0 depends on input position \d \(through the embedding embed\)"):
        assert_causal(language(masked=False), tokens)


def test_a_leak_of_a_millionth_is_found() -> None:
    def leaky(x):
        y = tf.cumsum(x, 1)
        return tf.concat([y[:, :3], y[:, 3:4] + 1e-6 * x[:, 7:8], y[:, 4:]], 1)

    with pytest.raises(Failed) as caught:
        assert_causal(leaky, tf.random.stateless_normal((2, 9, 3), (0, 0)))
    assert (caught.value.output[1], caught.value.input[1]) == (3, 7)


def test_batch_normalization_mixes_in_train_mode_only(x) -> None:
    model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(6), keras.layers.BatchNormalization(name="norm")])
    assert assert_batch_independent(model, x)
    before = [np.array(variable) for variable in model.non_trainable_variables]
    with pytest.raises(Failed, match="norm is a BatchNormalization in train mode"):
        assert_batch_independent(model, x, training=True)
    for variable, saved in zip(model.non_trainable_variables, before):
        np.testing.assert_array_equal(variable, saved)


def test_the_field_of_a_convolution_and_a_pool() -> None:
    stack = keras.Sequential([keras.Input((16, 16, 1)), keras.layers.Conv2D(3, 3), keras.layers.MaxPool2D(2)])
    assert wrt.receptive_field(stack, tf.zeros((1, 16, 16, 1)), (3, 3)).box == ((6, 10), (6, 10))


def test_flow_equals_a_tape(model, x) -> None:
    t = wrt.trace(lambda x: tf.reduce_mean(model(x) ** 2), x)
    seen = wrt.flow(t.output, model)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x) ** 2)
    for variable, g in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
        assert seen[variable.path.removeprefix(f"{model.name}/")].max == pytest.approx(float(tf.abs(g).numpy().max()), rel=1e-5)
    assert [layer.name for layer in seen if layer.kind == "feature map"] == ["fc1", "fc2", "fc3"]
    assert assert_all_parameters_learn(t.output, model)


def test_saliency_equals_a_tape(model, x) -> None:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = model(x)[0, 1]
    np.testing.assert_allclose(saliency.gradient(model, x, (0, 1)), tape.gradient(y, x), rtol=1e-4, atol=1e-7)
    assert saliency.smooth_grad(model, x, (0, 1), samples=3).shape == x.shape
    attributed = saliency.integrated_gradients(model, x, (0, 1))
    assert float(tf.reduce_sum(attributed)) == pytest.approx(float((model(x) - model(x * 0))[0, 1]), abs=1e-5)
    image = keras.Sequential([keras.Input((9, 9, 1)), keras.layers.Conv2D(3, 3, name="maps"), keras.layers.Flatten()])
    assert saliency.grad_cam(image, tf.ones((1, 9, 9, 1)), (0, 3), layer="maps").shape == (1, 7, 7, 1)
