"""Failures that people asked about in TensorFlow, and healthy programs that look like them.

One program each, as short as it still fails; where the question stands is said in its first lines.
"""

import math

import numpy as np
import tensorflow as tf

from tests.why._programs import Programs

programs = Programs()
show = programs.show


@show("unwatched")
def constant_not_watched():
    """tf.zeros() is a constant: the tape does not watch it.

    fchollet/deep-learning-with-python-notebooks#284
    """
    x = tf.zeros(shape=())
    with tf.GradientTape() as tape:  # <-
        y = 2 * x + 3
    return y, x, tape


@show("unwatched")
def conv_inputs_not_watched():
    """Gradient of a convolution with respect to a plain tensor kernel.

    tensorflow/tensorflow#50661
    """
    x = tf.reshape(tf.range(16.0), (1, 4, 4, 1))
    w = tf.ones((3, 3, 1, 1))
    with tf.GradientTape() as tape:  # <-
        out = tf.nn.conv2d(x, w, strides=1, padding="VALID")
        loss = tf.reduce_sum(out ** 2)
    return loss, w, tape


@show("tape_closed")
def forward_outside_tape():
    """The function is evaluated after the with block has closed.

    tensorflow/tensorflow#27660
    """

    def f(x):
        return x ** 2

    x = tf.convert_to_tensor(9.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
    out = f(x)  # <-
    return out, x, tape


@show("tape_closed")
def loss_outside_tape():
    """Prediction inside the tape, loss outside.

    tensorflow/tensorflow#31265
    """
    w = tf.Variable([[1.0], [2.0]])
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape() as tape:
        pred = x @ w
    loss = tf.reduce_mean((pred - 1.0) ** 2)  # <-
    return loss, w, tape


@show("unused_input")
def constant_target():
    """The target is a constant that has nothing to do with the source.

    tensorflow/tensorflow#56968
    """
    ones = tf.ones([1, 4, 4, 1])
    with tf.GradientTape() as tape:
        tape.watch(ones)
        score = tf.constant([4.43])  # <-
    return score, ones, tape


@show("int_input")
def integer_variable():
    """An integer variable cannot be differentiated.

    tensorflow/tensorflow#43845
    """
    x = tf.Variable(10)  # <-
    with tf.GradientTape() as tape:
        y = x * x
    return y, x, tape


@show("argmax")
def argmax_l2():
    """L2 loss between argmax of the logits and argmax of the labels.

    tensorflow/tensorflow#1511
    """
    w = tf.Variable([[0.1, 0.9], [0.4, 0.2]])
    x = tf.constant([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        logits = x @ w
        pred = tf.argmax(logits, 1)  # <-
        diff = tf.cast(pred - 1, tf.float32)
        loss = tf.nn.l2_loss(diff)
    return loss, w, tape


@show("round")
def floor_prediction():
    """tf.floor on the sigmoid before the loss.

    tensorflow/tensorflow#8625
    """
    logits = tf.Variable([0.3, 2.0, -1.0])
    with tf.GradientTape() as tape:
        prob = tf.sigmoid(logits)
        pred = tf.floor(prob + 0.5)  # <-
        loss = tf.reduce_mean(tf.abs(pred - 1.0))
    return loss, logits, tape


@show("sign")
def sign_step():
    """tf.sign as the decision function.

    tensorflow/tensorflow#47083 (step decision)
    """
    w = tf.Variable([0.2, -0.7])
    with tf.GradientTape() as tape:
        s = tf.sign(w)  # <-
        loss = tf.reduce_sum((s - 0.5) ** 2)
    return loss, w, tape


@show("numpy_roundtrip", "detach")
def numpy_in_loss():
    """A custom loss converts the prediction to numpy.

    tensorflow/tensorflow#36596
    """

    def custom_loss(pred):
        p = pred.numpy()  # <-
        return tf.constant(np.mean(p ** 2))

    x = tf.Variable([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        loss = custom_loss(x * 2.0)
    return loss, x, tape


@show("item")
def float_of_scalar():
    """math.exp(float(v)) leaves the graph.

    tensorflow/tensorflow#36596 (scalar version)
    """
    v = tf.Variable(0.5)
    b = tf.Variable(1.0)
    with tf.GradientTape() as tape:
        s = math.exp(float(v))  # <-
        loss = b * s
    return loss, v, tape


@show("host_callback")
def numpy_function_argmin():
    """tf.numpy_function in the forward pass.

    tensorflow/tensorflow#47033
    """
    y = tf.Variable([3.0, 1.0, 2.0])
    with tf.GradientTape() as tape:
        z = tf.numpy_function(lambda a: (a ** 2).astype(np.float32), [y * 1.0], tf.float32)  # <-
        loss = tf.reduce_sum(z)
    return loss, y, tape


@show("state_assign")
def assign_inside_tape():
    """A weight is assigned from x and then read.

    tensorflow/tensorflow#54532
    """
    w = tf.Variable(1.0)
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        w.assign(x * 3.0)  # <-
        loss = w * w
    return loss, x, tape


@show("variable_reassigned_to_tensor")
def variable_becomes_tensor():
    """x = x + 1 replaces the variable by a tensor; the second step gives None.

    https://www.tensorflow.org/guide/autodiff#1_replaced_a_variable_with_a_tensor
    """
    x = tf.Variable(2.0)
    for epoch in range(2):
        with tf.GradientTape() as tape:
            y = x + 1.0
            z = y * y
        if epoch == 0:
            x = x + 1.0  # <-
    return z, x, tape


@show("stop_gradient")
def stop_gradient_target():
    """tf.stop_gradient on the branch of interest.

    tensorflow/tensorflow#7236 (stop_gradient on the sample)
    """

    def encoder(x, w):
        return tf.stop_gradient(tf.tanh(x @ w))  # <-

    w = tf.Variable([[1.0], [0.5]])
    b = tf.Variable(0.0)
    with tf.GradientTape() as tape:
        z = encoder(tf.constant([[1.0, 2.0]]), w)
        loss = tf.reduce_sum((z + b) ** 2)
    return loss, w, tape


@show("norm_at_zero", "sqrt_at_zero", "domain_edge")
def norm_zero():
    """tf.norm of a zero row.

    tensorflow/tensorflow#12071
    """
    x = tf.constant([[1.0, 2.0], [0.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        n = tf.norm(x, axis=1)  # <-
        y = tf.reduce_sum(n)
    return y, x, tape


@show("sqrt_at_zero")
def sqrt_times_zero():
    """sqrt(c * x) with c = 0.

    tensorflow/tensorflow#4914
    """
    x = tf.Variable([1.0, 4.0])
    c = tf.constant([0.0, 2.0])
    with tf.GradientTape() as tape:
        r = tf.sqrt(c * x)  # <-
        y = tf.reduce_sum(r)
    return y, x, tape


@show("where_nan_trap")
def where_pow_overflow():
    """The inactive branch overflows.

    tensorflow/tensorflow#38349
    """
    a = tf.Variable(10.0)
    with tf.GradientTape() as tape:
        big = tf.math.pow(10.0, tf.math.exp(a))  # <-
        out = tf.where(a < 15.0, a, big)
    return out, a, tape


@show("log_zero", "domain_edge")
def entropy_log_zero():
    """p * log(p) at p = 0."""
    p = tf.Variable([0.0, 0.5, 0.5])
    with tf.GradientTape() as tape:
        h = -tf.reduce_sum(p * tf.math.log(p))  # <-
    return h, p, tape


@show("custom_backward_wrong")
def custom_gradient_identity():
    """A custom gradient that returns dy unchanged for softplus.

    tensorflow/tensorflow#3710
    """

    @tf.custom_gradient
    def softplus(x):
        def grad(dy):
            return dy  # <-
        return tf.math.log(1.0 + tf.exp(x)), grad

    x = tf.Variable([0.0, 1.0, 2.0])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(softplus(x))
    return y, x, tape


@show("tape_consumed")
def tape_used_twice():
    """A non-persistent tape is asked twice.

    tensorflow/tensorflow#46487
    """
    x = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = x ** 2
        z = y * 3.0
    tape.gradient(y, x)  # <-
    return z, x, tape


@show("dead_relu")
def dead_relu():
    """All-zero Grad-CAM: every unit is off.

    tensorflow/tensorflow#56657
    """
    x = tf.Variable([[0.5, 0.2]])
    k = tf.constant([[-3.0, -1.0], [-2.0, -4.0]])
    with tf.GradientTape() as tape:
        a = tf.nn.relu(x @ k)  # <-
        y = tf.reduce_sum(a)
    return y, x, tape


@show("saturated")
def saturated_softmax():
    """Gradient of a confident softmax output.

    keras-team/keras#5881
    """
    x = tf.Variable([4.0, 0.1])
    w = tf.constant([[50.0, -10.0], [1.0, 60.0]])
    with tf.GradientTape() as tape:
        logits = tf.linalg.matvec(w, x)
        p = tf.nn.softmax(logits)  # <-
        y = p[0]
    return y, x, tape


@show("not_indexed", at=0)
def gather_other_row():
    """tf.gather reads rows 1 and 2 only.

    seed 002 (element gradients with GradientTape)
    """
    t = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    with tf.GradientTape() as tape:
        rows = tf.gather(t, [1, 2])  # <-
        y = tf.reduce_sum(rows ** 2)
    return y, t, tape


@show("not_requires_grad")
def non_trainable_variable():
    """A variable with trainable=False is not watched.

    tensorflow/tensorflow#59652 (frozen inner model)
    """
    w = tf.Variable([2.0, 3.0], trainable=False)  # <-
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(w ** 2)
    return y, w, tape


@show("late_requires_grad")
def watch_after_use():
    """tape.watch(x) after x was used."""
    x = tf.constant([1.0, 2.0])
    w = tf.Variable([3.0, 4.0])
    with tf.GradientTape() as tape:
        h = x * 2.0
        tape.watch(x)  # <-
        y = tf.reduce_sum(h * w)
    return y, x, tape


@show("none")
def watched_element():
    """Control: one element of a watched tensor.

    seed 002 example 1
    """
    x = tf.constant([[1.0, 2.0], [4.0, 5.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x[1, 0] * 2.0
    return y, x, tape


@show("none")
def numpy_logging():
    """Control: .numpy() for logging only.

    control
    """
    w = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        h = w * 3.0
        log = h.numpy().mean()
        y = tf.reduce_sum(h ** 2)
    return y, w, tape


@show("none")
def safe_where():
    """Control: double where.

    control (double where)
    """
    x = tf.Variable([-1.0, 4.0])
    with tf.GradientTape() as tape:
        safe = tf.where(x > 0, x, tf.ones_like(x))
        y = tf.reduce_sum(tf.where(x > 0, tf.sqrt(safe), x))
    return y, x, tape
