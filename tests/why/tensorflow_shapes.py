"""Failures in TensorFlow in the shapes in which programs have them."""

import numpy as np
import tensorflow as tf

from tests.why._programs import Programs

programs = Programs()


class Dense(tf.Module):
    """A layer by hand."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        self.w = tf.Variable(tf.reshape(tf.linspace(-0.5, 0.6, n * m), (n, m)))
        self.b = tf.Variable(tf.zeros(m))

    def __call__(self, x):
        return x @ self.w + self.b


@programs.show("unwatched")
def an_image_to_explain():
    image = tf.ones((1, 3))
    net = Dense(3, 2)
    with tf.GradientTape():  # <-
        y = tf.reduce_sum(tf.tanh(net(image)))
    return y, image


@programs.show("tape_closed")
def the_loss_after_the_tape():
    net = Dense(3, 2)
    with tf.GradientTape():
        h = tf.tanh(net(tf.ones((1, 3))))
    loss = tf.reduce_mean(h**2)  # <-
    return loss, net.w


@programs.show("stop_gradient")
def a_frozen_branch():
    net = Dense(3, 2)
    with tf.GradientTape():
        h = tf.stop_gradient(net(tf.ones((1, 3))))  # <-
        loss = tf.reduce_mean((h - 1.0) ** 2)
    return loss, net.w


@programs.show("numpy_roundtrip")
def through_numpy():
    x = tf.Variable([1.0, 2.0])
    v = tf.Variable([1.0, 1.0])
    with tf.GradientTape():
        h = np.tanh(x.numpy())  # <-
        loss = tf.reduce_sum(tf.constant(h) * v)
    return loss, x


@programs.show("argmax")
def a_hard_choice():
    x = tf.Variable([1.0, 3.0, 2.0])
    table = tf.Variable([[1.0], [2.0], [3.0]])
    with tf.GradientTape():
        k = tf.argmax(x * 2)  # <-
        y = tf.gather(table, k)[0]
    return y, x


@programs.show("integer_cast")
def cast_to_int():
    x = tf.Variable([0.5, 1.5])
    table = tf.Variable([1.0, 2.0, 3.0])
    with tf.GradientTape():
        k = tf.cast(x, tf.int32)  # <-
        y = tf.reduce_sum(tf.gather(table, k))
    return y, x


@programs.show("round")
def rounded():
    x = tf.Variable([0.3, 1.7])
    with tf.GradientTape():
        y = tf.reduce_sum(tf.round(x * 4) / 4)  # <-
    return y, x


@programs.show("dead_relu")
def all_off():
    net = Dense(3, 2)
    net.b.assign([-90.0, -90.0])
    with tf.GradientTape():
        h = tf.nn.relu(net(tf.ones((1, 3))))  # <-
        loss = tf.reduce_sum(h * 3)
    return loss, net.w


@programs.show("clamp")
def clipped():
    x = tf.Variable([5.0, 6.0])
    with tf.GradientTape():
        h = tf.clip_by_value(x, -1.0, 1.0)  # <-
        loss = tf.reduce_sum(h * tf.constant([1.0, 2.0]))
    return loss, x


@programs.show("saturated")
def far_out():
    x = tf.Variable([500.0, 600.0])
    with tf.GradientTape():
        h = tf.sigmoid(x)  # <-
        loss = tf.reduce_sum(h * tf.constant([1.0, 2.0]))
    return loss, x


@programs.show("mask")
def a_mask_of_zeros():
    x = tf.Variable([1.0, 2.0])
    with tf.GradientTape():
        loss = tf.reduce_sum(tf.sin(x) * tf.zeros(2))  # <-
    return loss, x


@programs.show("log_zero")
def entropy():
    p = tf.Variable([0.0, 0.5, 0.5])
    with tf.GradientTape():
        loss = -tf.reduce_sum(p * tf.math.log(p))  # <-
    return loss, p


@programs.show("where_nan_trap")
def guarded_too_late():
    x = tf.Variable([0.0, 1.0])
    with tf.GradientTape():
        y = tf.reduce_sum(tf.where(x > 0, tf.math.log(x), tf.zeros(2)))  # <-
    return y, x


@programs.show("unused_input")
def a_layer_nobody_calls():
    a, b = Dense(3, 2), Dense(3, 2)
    with tf.GradientTape():
        loss = tf.reduce_sum(a(tf.ones((1, 3))) ** 2)
    return loss, b.w


@programs.show("none")
def a_training_step():
    net, optimizer = Dense(3, 2), 0.1
    with tf.GradientTape() as tape:
        logits = net(tf.ones((4, 3)))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.constant([0, 1, 0, 1]), logits))
    (g,) = tape.gradient(loss, [net.w])
    net.b.assign_sub(optimizer * tf.reduce_sum(g, 0))
    return loss, net.w


@programs.show("none")
def a_metric_beside():
    net = Dense(3, 2)
    with tf.GradientTape():
        logits = net(tf.reshape(tf.range(12.0), (4, 3)) / 12)
        hits = float(tf.reduce_mean(tf.cast(tf.argmax(logits, 1) == 1, tf.float32)))
        loss = tf.reduce_mean(tf.nn.softplus(logits[:, 0] - logits[:, 1]))
    assert 0 <= hits <= 1
    return loss, net.w
