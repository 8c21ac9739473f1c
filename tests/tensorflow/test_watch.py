"""A watch sees what tapes give for a model's variables, inside Keras' `fit` too, and training goes on as without it."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import wrt


def small(run_eagerly: bool = False, jit_compile: bool = False, steps: int = 1) -> keras.Model:
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(4, activation="tanh", name="hidden"), keras.layers.Dense(1, name="last")]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    model.compile("sgd", "mse", run_eagerly=run_eagerly, jit_compile=jit_compile, steps_per_execution=steps)
    return model


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(40, 3)).astype("f4"), random.normal(size=(40, 1)).astype("f4")


WAYS = {"compiled": {}, "eager": {"run_eagerly": True}, "xla": {"jit_compile": True}}


@pytest.mark.parametrize("way", WAYS)
def test_fit_is_watched_and_trains_to_the_same_bits(way: str, data: tuple[np.ndarray, np.ndarray]) -> None:
    plain, model = small(**WAYS[way]), small(**WAYS[way])
    plain.fit(*data, batch_size=8, shuffle=False, verbose=0)
    with wrt.watch(model, every=2) as w:
        model.fit(*data, batch_size=8, shuffle=False, verbose=0)
    assert [step for step, _ in w.history] == [0, 2, 4]
    assert w.step == 5
    assert model.train_function is None  # as it was
    for here, there in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(here, there)


def test_what_is_seen_in_fit_is_the_gradient(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = data
    model, twin = small(), small()
    with wrt.watch(model, every=1) as w:
        model.fit(x[:8], y[:8], batch_size=8, verbose=0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((twin(x[:8]) - y[:8]) ** 2)
    for variable, gradient in zip(twin.trainable_variables, tape.gradient(loss, twin.trainable_variables), strict=True):
        name = "/".join(variable.path.split("/")[-2:])
        assert w.latest[name].max == pytest.approx(float(tf.reduce_max(tf.abs(gradient))), rel=1e-5)


def test_a_model_compiled_before_keeps_its_own_step(data: tuple[np.ndarray, np.ndarray]) -> None:
    model = small()
    model.fit(*data, batch_size=8, verbose=0)
    before = model.train_function
    with wrt.watch(model, every=5) as w:
        model.fit(*data, batch_size=8, verbose=0)
        model.train_on_batch(data[0][:8], data[1][:8])
    assert model.train_function is before
    assert w.step == 6
    model.fit(*data, batch_size=8, verbose=0)
    assert w.step == 6


def test_several_steps_in_one_call_are_all_counted(data: tuple[np.ndarray, np.ndarray]) -> None:
    with wrt.watch(model := small(steps=5), every=1) as w:
        model.fit(*data, batch_size=8, verbose=0)
    assert w.step == 5


def test_a_loop_with_a_tape_needs_nothing_but_the_watch() -> None:
    model = keras.Sequential([keras.layers.Embedding(10, 4, name="words"), keras.layers.Dense(1, name="last")])
    optimizer = keras.optimizers.SGD(0.1)
    ids = np.arange(6).reshape(2, 3)
    with wrt.watch(model, every=2) as w:  # it has no variables yet
        for _ in range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(ids) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    assert [step for step, _ in w.history] == [0, 2]
    assert w.latest["words/embeddings"].zeros == pytest.approx(0.4)  # ids 6 to 9 were not there


def test_a_tf_module_and_a_variable_that_gets_nothing() -> None:
    class Two(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = tf.Variable([1.0, 2.0]), tf.Variable([3.0])

    model = Two()
    with wrt.watch(model, every=1) as w, tf.GradientTape() as tape:
        found = tape.gradient(tf.reduce_sum(model.used**2), [model.used, model.idle])
    assert found[1] is None
    assert w.latest["used"].max == 4.0
    assert w.alerts == ["step 0: idle no gradient"]


def test_a_tf_function_of_the_user_says_that_it_is_not_seen() -> None:
    model = tf.Module()
    model.w = tf.Variable([1.0, 2.0])

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model.w**2)
        return tape.gradient(loss, model.w)

    with wrt.watch(model, every=1) as w:
        gradients = step()
        assert repr(w) == (
            "Watch  0 looks in 0 steps, gradients inside a tf.function are not seen: "
            "return them from it, and call the watch with them"
        )
        w({"w": gradients})
    assert w.latest["w"].max == 4.0
