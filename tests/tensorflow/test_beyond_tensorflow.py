"""Beyond one process with TensorFlow: models travel, blocks and samples agree with a tape."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt import d

pytest.importorskip("dask")


def build(state):
    return lambda x: tf.tanh(x @ state["first"]) @ state["last"]


def state() -> dict[str, tf.Tensor]:
    chance = np.random.default_rng(0)
    return {"first": tf.constant(chance.normal(size=(6, 9))), "last": tf.Variable(chance.normal(size=(9, 5)))}


def by_tape(x: tf.Tensor) -> np.ndarray:
    f = build(state())
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.jacobian(y, x).numpy()


def test_blocks_make_up_the_jacobian() -> None:
    x = tf.constant(np.linspace(-1, 1, 6)[None])
    run = pickle.loads(pickle.dumps(wrt.Model(build, state(), x))).trace()
    found = (d(run.output) / d(run.inputs[0])).dask(chunks=(1, 2, -1, -1))
    assert np.allclose(found.compute(scheduler="synchronous"), by_tape(x), rtol=1e-12)
    with ThreadPoolExecutor(2) as pool:
        assert np.array_equal(found.compute(scheduler="threads", pool=pool), found.compute(scheduler="synchronous"))


@pytest.mark.parametrize("take", ["value", "norm"])
def test_every_sample_has_the_answer_that_it_has_alone(take: str) -> None:
    xs = np.linspace(-1, 1, 42).reshape(7, 6)
    found = wrt.map(lambda t: d(t.output)[0] / d(t.inputs[0])[0], xs, model=wrt.Model(build, state()), take=take, batch=4)
    expected = np.stack([by_tape(tf.constant(x[None]))[0, :, 0] for x in xs])
    expected = expected if take == "value" else np.sqrt((expected**2).sum((1, 2)))
    assert np.allclose(found, expected, rtol=1e-12)


def test_the_floats_that_keras_makes_travel() -> None:
    keras = pytest.importorskip("keras")
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    try:
        model = wrt.Model(lambda: keras.layers.Dense(3, kernel_initializer="ones"), None, tf.ones((1, 2), tf.float64))
    finally:
        keras.config.set_dtype_policy(before)
    assert model.trace().output.dtype == tf.float64
    assert keras.config.dtype_policy() == before


def test_the_blocks_of_a_second_derivative_make_up_the_hessian() -> None:
    x = tf.constant(np.linspace(-1, 1, 6)[None])
    run = pickle.loads(pickle.dumps(wrt.Model(energy, state(), x))).trace()
    found = (d(run.output) / d(run.inputs[0]) / d(run.inputs[0])).dask(chunks=(1, 2, 1, -1))
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = energy(state())(x)
        gradient = inner.gradient(y, x)
    assert np.allclose(found.compute(scheduler="synchronous"), outer.jacobian(gradient, x).numpy(), rtol=1e-10, atol=1e-12)


def energy(state):
    return lambda x: tf.reduce_sum(tf.tanh(x @ state["first"]) ** 2)
