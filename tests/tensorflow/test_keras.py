"""Keras models: layers by name and attribute, their inputs and weights, against finite differences and plain tapes."""

from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

import wrt
from tests._snapshot import unchanged
from wrt import d


def image(*shape: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(3).normal(size=shape))


@pytest.fixture
def cnn(double: None) -> keras.Model:
    keras.utils.set_random_seed(1)
    block = keras.Sequential(
        [keras.layers.Conv2D(4, 3, padding="same", name="conv"), keras.layers.Activation("tanh", name="act")],
        name="block1",
    )
    inputs = keras.Input((8, 8, 3), dtype="float64")
    h = keras.layers.MaxPooling2D(name="pool")(block(inputs))
    out = keras.layers.Dense(5, name="head")(keras.layers.Flatten()(h))
    return keras.Model(inputs, out, name="cnn")


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy(before)


def test_a_feature_map_element_with_respect_to_a_pixel_equals_finite_differences(cnn: keras.Model) -> None:
    x = image(1, 8, 8, 3)
    t = wrt.trace(cnn, x)
    got = float(d(t["block1/conv"])[0, 4, 5, 2] / d(t.inputs[0])[0, 3, 4, 1])
    conv = cnn.get_layer("block1").get_layer("conv")
    eps = 1e-6
    moved = np.zeros(x.shape)
    moved[0, 3, 4, 1] = eps
    numeric = (conv(x + moved) - conv(x - moved))[0, 4, 5, 2] / (2 * eps)
    assert abs(got - float(numeric)) < 1e-8
    assert got == float(conv.kernel[0, 0, 1, 2])  # the tap that joins the two


def test_layers_inside_layers_have_paths(cnn: keras.Model) -> None:
    x = image(1, 8, 8, 3)
    t = wrt.trace(cnn, x)
    for path in ("block1", "block1/conv", "block1/act", "pool", "head"):
        assert path in t.names
    assert t["block1/act"].shape == (1, 8, 8, 4)
    with tf.GradientTape(persistent=True) as tape:
        h = cnn.get_layer("block1")(x)
        tape.watch(h)
        y = cnn.get_layer("head")(tf.reshape(cnn.get_layer("pool")(h), (1, -1)))[0, 2]
    assert np.allclose(d(t.output)[0, 2] / d(t["block1"]), tape.gradient(y, h), rtol=1e-12, atol=1e-15)
    assert np.allclose(d(t.output)[0, 2] / d(t["pool.input"]), tape.gradient(y, h), rtol=1e-12, atol=1e-15)


def test_every_operation_of_a_model_is_in_the_graph_with_its_layer(cnn: keras.Model) -> None:
    t = wrt.trace(cnn, image(1, 8, 8, 3))
    modules = {node.op: node.module for node in t.graph if node.op in ("Conv2D", "Tanh", "MaxPool", "MatMul")}
    assert modules == {"Conv2D": "block1/conv", "Tanh": "block1/act", "MaxPool": "pool", "MatMul": "head"}
    assert all(node.where is not None for node in t.graph)


def test_weights_by_name_and_the_whole_model(cnn: keras.Model) -> None:
    x = image(2, 8, 8, 3)

    def loss(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(cnn(x) ** 2)

    t = wrt.trace(loss, x)
    with tf.GradientTape() as tape:
        y = loss(x)
    expected = tape.gradient(y, cnn.trainable_variables)
    tree = d(t.output) / d(cnn)
    assert list(tree) == [variable.path for variable in cnn.trainable_variables]
    for got, want in zip(tree.values(), expected, strict=True):
        assert np.allclose(got, want, rtol=1e-12, atol=1e-14)
    assert np.allclose(d(t.output) / d(t["head.kernel"]), expected[2], rtol=1e-12, atol=1e-14)
    assert np.allclose(d(t.output) / d(cnn.get_layer("head").kernel), expected[2], rtol=1e-12, atol=1e-14)


def test_a_subclassed_model_names_its_layers_by_attribute() -> None:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first = keras.layers.Dense(4, activation="tanh")
            self.rest = [keras.layers.Dense(3), keras.layers.Dense(2)]

        def call(self, x: tf.Tensor) -> tf.Tensor:
            h = self.first(x)
            for layer in self.rest:
                h = layer(h)
            return h

    net, x = Net(), image(2, 3)
    net(x)
    t = wrt.trace(net, x)
    assert np.allclose(t["first"].value, net.first(x))
    assert np.allclose(d(t.output)[1] / d(t["rest[0]"])[1], tf.transpose(net.rest[1].kernel))
    assert np.array_equal(t["h", 1].value, t["rest[0]"].value)
    assert float(d(t.output)[0, 0] / d(t["first.kernel"])[1, 2]) != 0.0


def test_a_layer_called_twice_is_counted() -> None:
    layer = keras.layers.Dense(3, activation="tanh", name="shared")

    def f(x: tf.Tensor) -> tf.Tensor:
        return layer(layer(x))

    t = wrt.trace(f, image(1, 3))
    once, twice = t["shared", 0].value, t["shared", 1].value
    expected = (1 - twice.numpy()[0] ** 2)[:, None] * layer.kernel.numpy().T
    assert np.allclose((d(t["shared", 1]) / d(t["shared", 0])).numpy()[0, :, 0], expected)
    assert not np.allclose(once, twice)


def test_recurrent_layers() -> None:
    lstm = keras.layers.LSTM(4, return_sequences=True, name="lstm")
    model = keras.Sequential([lstm, keras.layers.GRU(3, name="gru")])
    x = image(2, 5, 3)
    model(x)
    t = wrt.trace(model, x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = model(x)[1, 2]
    assert np.allclose(d(t.output)[1, 2] / d(t.inputs[0]), tape.gradient(y, x), rtol=1e-10, atol=1e-14)
    J = (d(t["lstm"])[0, 1] / d(t.inputs[0])[0]).numpy()  # step 1 sees steps 0 and 1, nothing later
    assert np.abs(J[:, :2]).min() > 0
    assert not J[:, 2:].any()


def test_attention_and_normalization() -> None:
    inputs = keras.Input((6, 8), dtype="float64")
    a = keras.layers.MultiHeadAttention(2, 4, name="attention")(inputs, inputs, use_causal_mask=True)
    model = keras.Model(inputs, keras.layers.LayerNormalization(name="norm")(a + inputs))
    x = image(1, 6, 8)
    t = wrt.trace(model, x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = model(x)[0, 3, 1]
    row = (d(t.output)[0, 3, 1] / d(t.inputs[0])).numpy()
    assert np.allclose(row, tape.gradient(y, x), rtol=1e-10, atol=1e-14)
    assert np.abs(row[0, 4:]).max() < 1e-12  # a causal mask: the future does not matter


def test_training_mode_and_dropout_keep_the_mask_of_the_run() -> None:
    model = keras.Sequential([keras.layers.BatchNormalization(name="bn"), keras.layers.Dropout(0.5, name="drop")])
    x = image(16, 4)
    model(x)
    t = wrt.trace(lambda x: model(x, training=True), x)
    kept = t["drop"].value.numpy() != 0
    slope = (d(t["drop"]) / d(t["bn"])).diagonal().numpy()
    assert np.allclose(slope, kept * 2.0)


def test_a_training_step_inside_a_recording() -> None:
    model = keras.Sequential([keras.layers.Dense(3)])
    optimizer = keras.optimizers.SGD(0.1)
    x = image(4, 2)
    model(x)
    before = model.trainable_variables[0].numpy()
    with wrt.record():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    assert np.allclose(d(loss) / d(model.trainable_variables[0]), gradients[0], rtol=1e-12)
    assert np.allclose(model.trainable_variables[0].numpy(), before - 0.1 * gradients[0].numpy())


def test_recording_a_model_changes_nothing(cnn: keras.Model) -> None:
    x = image(2, 8, 8, 3)
    with unchanged(cnn, x):
        t = wrt.trace(cnn, x)
        (d(t.output)[0] / d(t["pool"])).value
        (d(t.output)[0, 0] / d(cnn))["head/kernel"].value


def test_layer_calls_are_put_back_when_the_code_raises(cnn: keras.Model) -> None:
    original = keras.layers.Layer.__call__
    with pytest.raises(ValueError, match="stop"), wrt.record():
        cnn(image(1, 8, 8, 3))
        raise ValueError("stop")
    assert keras.layers.Layer.__call__ is original
