"""Questions people ask about gradients of elements, in TensorFlow: run `python examples/in_tensorflow.py`.

Eager code runs inside `wrt.record()`, which watches every tensor: to watch a tensor is to differentiate by it, it does not
become a constant. A recording answers for as long as someone holds its `t`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import wrt
from wrt import d


def check(question: str, answer: object, expected: object, tolerance: float = 1e-9) -> None:
    """Print an answer, and stop where it is not what was found another way."""
    np.testing.assert_allclose(np.asarray(answer), np.asarray(expected), rtol=tolerance, atol=tolerance)
    print(f"{question:55}", np.array2string(np.asarray(answer), precision=4, threshold=8, edgeitems=1).replace("\n", ""))


def tensor(*shape: int, seed: int = 0) -> tf.Tensor:
    """A float64 tensor; nothing about it has to be declared."""
    return tf.constant(np.random.default_rng(seed).normal(size=shape))


# ---- one element of a tensor ----

with wrt.record() as t:
    x = tensor(5)
    y = 2 * x[2] + tf.reduce_sum(x)
check("y = 2 x[2] + sum(x):  d(y) / d(x)[2]", d(y) / d(x)[2], 3.0)

with wrt.record() as t:
    x = tensor(5)
    indexed = 2 * x[0]
    gathered = 2 * tf.gather(x, [0])
    masked = 2 * tf.boolean_mask(x, [True, False, False, False, False])
check("by an index:  d(indexed) / d(x)", d(indexed) / d(x), [2, 0, 0, 0, 0])
check("by gather:  d(gathered)[0] / d(x)", d(gathered)[0] / d(x), [2, 0, 0, 0, 0])
check("by a mask:  d(masked)[0] / d(x)", d(masked)[0] / d(x), [2, 0, 0, 0, 0])

with wrt.record() as t:
    x = tensor(3, 3)
    y = x * 1
one = np.zeros((3, 3))
one[1, 2] = 1
check("an element of itself:  d(x)[1, 2] / d(x)", d(x)[1, 2] / d(x), one)
check("  of a copy:  d(y)[1, 2] / d(x)", d(y)[1, 2] / d(x), one)

# ---- products, totals, feature maps ----

with wrt.record() as t:
    x, w = tensor(2, 3), tensor(3, 2, seed=1)
    z = tf.matmul(x, w)
    s = tf.reduce_sum(x)
row = np.zeros((2, 3))
row[0] = w.numpy()[:, 0]
check("z = x @ w:  d(z)[0, 0] / d(x)", d(z)[0, 0] / d(x), row)
check("a total:  d(s) / d(x)", d(s) / d(x), np.ones((2, 3)))

with wrt.record() as t:
    image, kernel = tensor(1, 8, 8, 3), tensor(3, 3, 3, 4, seed=1)
    m = tf.nn.conv2d(image, kernel, strides=1, padding="VALID")  # pixel (4, 7) lies at (0, 2) of the window at (4, 5)
check("one feature by one pixel", d(m)[0, 4, 5, 2] / d(image)[0, 4, 7, 1], kernel.numpy()[0, 2, 1, 2])
check("  by a pixel out of its reach", d(m)[0, 4, 5, 2] / d(image)[0, 0, 0, 1], 0.0)

# ---- a tensor with respect to itself, and whole Jacobians ----

with wrt.record() as t:
    y = 3 * tensor(2, 2)
    total = tf.reduce_sum(y)
check("the identity:  d(y) / d(y)", d(y) / d(y), np.eye(4).reshape(2, 2, 2, 2))
check("  ones are another question:  d(total) / d(y)", d(total) / d(y), np.ones((2, 2)))

with wrt.record() as t:
    x = tensor(4)
    y = x**2
check("x squared:  d(y) / d(x)", d(y) / d(x), np.diag(2 * x.numpy()))

with wrt.record() as t:
    x, w = tensor(6), tensor(6, 8, seed=1)
    y = tf.tanh(tf.linalg.matvec(w, x, transpose_a=True)) * x[0]
with tf.GradientTape() as tape:
    tape.watch(x)
    again = tf.tanh(tf.linalg.matvec(w, x, transpose_a=True)) * x[0]
rows = tape.jacobian(again, x).numpy()
check("a Jacobian:  d(y) / d(x)", d(y) / d(x), rows)
check("  a block of it:  d(y)[2:4] / d(x)[::2]", d(y)[2:4] / d(x)[::2], rows[2:4, ::2])
