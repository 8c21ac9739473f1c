"""`t.why()` of training steps: a tape is judged by what it was asked for, not by what its gradients are used for."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import wrt


def model() -> Any:
    tf.keras.utils.set_random_seed(0)
    made = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="tanh"), tf.keras.layers.Dense(1)])
    made.build((None, 2))
    return made


def batch() -> tuple[tf.Tensor, tf.Tensor]:
    return tf.random.stateless_normal((8, 2), (1, 2)), tf.random.stateless_normal((8, 1), (3, 4))


def step(net: Any, optimizer: Any) -> None:
    x, y = batch()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((net(x) - y) ** 2)
    gradients = tape.gradient(loss, net.trainable_variables)
    gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
    optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_healthy_step_is_no_alarm(kind: str, times: int) -> None:
    net, optimizer = model(), getattr(tf.keras.optimizers, kind)(0.1)
    with wrt.record() as t:
        for _ in range(times):
            step(net, optimizer)
    assert not t.why()


def test_a_gradient_that_is_looked_at_is_no_alarm() -> None:
    v, x = tf.Variable([1.0, 2.0]), tf.constant([3.0, 4.0])
    with wrt.record() as t:
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(v * v * x)
        gradient = tape.gradient(y, v)
        tf.norm(gradient)
    assert not t.why()


def test_a_gradient_of_a_gradient_is_no_alarm() -> None:
    v = tf.Variable([1.0, 2.0])
    with wrt.record() as t, tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = tf.reduce_sum(v**3)
        slope = inner.gradient(y, v)
        outer.gradient(slope, v)
    assert not t.why()


def test_a_sick_step_is_told_with_its_line() -> None:
    net, optimizer = model(), tf.keras.optimizers.SGD(0.1)
    x, y = batch()
    with wrt.record() as t:
        for _ in range(2):
            with tf.GradientTape() as tape:
                h = tf.stop_gradient(net.layers[0](x))
                loss = tf.reduce_mean((net.layers[1](h) - y) ** 2)
            gradients = tape.gradient(loss, net.trainable_variables)
            pairs = zip(gradients, net.trainable_variables, strict=True)
            optimizer.apply_gradients([(g, v) for g, v in pairs if g is not None])
    found = t.why()[0]
    assert found.cause == "stop_gradient"
    assert found.where is not None
    assert "tf.stop_gradient(net.layers[0](x))" in found.where.text


def test_why_of_a_variable_that_was_written_since() -> None:
    v = tf.Variable([1.0, 2.0])
    with wrt.record():
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(v * v)
        v.assign_sub(tape.gradient(y, v))
    assert not wrt.why(y, v)


def test_a_jacobian_of_the_users_own_is_no_alarm() -> None:
    v = tf.Variable([[1.0, 2.0]])
    with wrt.record() as t:
        with tf.GradientTape(persistent=True) as tape:
            y = v * v
        tape.jacobian(y, v)
        tape.batch_jacobian(y, v)
    assert not t.why()


def test_the_constant_that_a_variable_is_made_of_is_no_alarm() -> None:
    with wrt.record() as t:
        v = tf.Variable([1.0, 2.0])
        _ = tf.reduce_sum(v**2)
    assert not t.why()
