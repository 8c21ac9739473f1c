"""Mistakes in TensorFlow, and healthy programs that look like them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.why._programs import Programs

programs = Programs()
show = programs.show


@show("unwatched")
def a_constant_input():
    x = tf.constant([1.0, 2.0])
    w = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:  # <-
        y = tf.reduce_sum(x * w)
    return y, x


@show("tape_closed")
def a_loss_after_the_block():
    w = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        h = w * 2.0
    y = tf.reduce_sum(h)  # <-
    return y, w


@show("tape_closed")
def a_tape_that_stops_recording():
    w = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        with tape.stop_recording():
            h = w * 2.0  # <-
        y = tf.reduce_sum(h)
    return y, w


@show("stop_gradient")
def a_stopped_branch():
    w = tf.Variable([1.0, 2.0])
    v = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        h = tf.stop_gradient(w * 2.0)  # <-
        y = tf.reduce_sum(h * v)
    return y, w


@show("argmax")
def an_index():
    w = tf.Variable([0.1, 0.9])
    table = tf.Variable([3.0, 4.0])
    with tf.GradientTape() as tape:
        k = tf.argmax(w)  # <-
        y = tf.gather(table, k) * 2.0
    return y, w


@show("integer_cast")
def a_cast():
    w = tf.Variable([0.1, 2.9])
    with tf.GradientTape() as tape:
        k = tf.cast(w, tf.int32)  # <-
        y = tf.reduce_sum(tf.cast(k, tf.float32) * 2.0)
    return y, w


@show("comparison")
def a_threshold():
    w = tf.Variable([0.1, 2.9])
    with tf.GradientTape() as tape:
        hit = w > 1.0  # <-
        y = tf.reduce_mean(tf.cast(hit, tf.float32))
    return y, w


@show("numpy_roundtrip")
def numpy_between():
    w = tf.Variable([0.1, 2.9])
    v = tf.Variable([1.0, 1.0])
    with tf.GradientTape() as tape:
        a = np.sort((w * 2.0).numpy())  # <-
        y = tf.reduce_sum(tf.constant(a) * v)
    return y, w


@show("state_assign")
def a_running_mean():
    w = tf.Variable([0.1, 2.9])
    mean = tf.Variable(0.0)
    with tf.GradientTape() as tape:
        mean.assign(tf.reduce_mean(w))  # <-
        y = mean * 2.0
    return y, w


@show("round")
def a_rounding():
    w = tf.Variable([0.1, 2.9])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.round(w) * 2.0)  # <-
    return y, w


@show("clamp")
def clipped():
    w = tf.Variable([5.0, -7.0])
    with tf.GradientTape() as tape:
        h = tf.clip_by_value(w, -1.0, 1.0)  # <-
        y = tf.reduce_sum(h * 2.0)
    return y, w


@show("saturated")
def a_sigmoid():
    w = tf.Variable([200.0, -300.0])
    with tf.GradientTape() as tape:
        h = tf.sigmoid(w)  # <-
        y = tf.reduce_sum(h**2)
    return y, w


@show("mask")
def times_zero():
    w = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        h = w * tf.constant([0.0, 0.0])  # <-
        y = tf.reduce_sum(h)
    return y, w


@show("log_zero")
def log_of_zero():
    w = tf.Variable([0.0, 2.0])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.math.log(w))  # <-
    return y, w


@show("div_zero")
def divided_by_zero():
    w = tf.Variable([0.0, 2.0])
    with tf.GradientTape() as tape:
        q = 1.0 / w  # <-
        y = tf.reduce_sum(q)
    return y, w


@show("where_nan_trap")
def where_over_a_log():
    w = tf.Variable([0.0, 4.0])
    with tf.GradientTape() as tape:
        r = tf.math.log(w)  # <-
        y = tf.reduce_sum(tf.where(w > 0, r, w))
    return y, w


@show("int_input")
def an_integer_variable():
    w = tf.Variable([1, 2])  # <-
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.cast(w, tf.float32) ** 2)
    return y, w


@show("none")
def a_training_step():
    model = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="relu"), tf.keras.layers.Dense(1)])
    x, t = tf.random.normal((5, 3), seed=1), tf.random.normal((5, 1), seed=2)
    model(x)
    optimizer = tf.keras.optimizers.Adam()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - t) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True))
    return loss, model.layers[1].kernel


@show("none")
def an_input_gradient():
    w = tf.Variable([1.0, 2.0])
    x = tf.constant([3.0, 4.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.tanh(x * w))
    tape.gradient(y, x)
    return y, x


@show("none")
def without_a_tape():
    w = tf.Variable([1.0, 2.0])
    return tf.reduce_sum(w**2), w


@show("none")
def second_order():
    x = tf.Variable(2.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = x**3
        slope = inner.gradient(y, x)
    outer.gradient(slope, x)
    return slope, x


@show("host_callback")
def a_variable_given_to_a_host_function():
    a = tf.Variable([1.0, 4.0, 3.0])
    with tf.GradientTape():
        s = tf.numpy_function(lambda v: v * 2, [a], tf.float32)  # <-
        return tf.reduce_sum(s), a


@show("parameter_wrap")
def a_variable_made_of_a_result():
    a = tf.Variable([1.0, 2.0])
    with tf.GradientTape():
        b = tf.Variable(a * 2)  # <-
        return tf.reduce_sum(b * b), a


@show("not_indexed", at=2)
def a_slice_of_a_variable():
    a = tf.Variable([1.0, 4.0, 3.0])
    with tf.GradientTape():
        return tf.reduce_sum(a[:2] ** 2), a  # <-
