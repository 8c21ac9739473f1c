"""The questions in TensorFlow: eager code inside `wrt.record()`, which watches every tensor for the user."""

# ruff: noqa: F841 (a recording answers for as long as someone holds its t)
from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import wrt
from wrt import d
from wrt._cli.demo.question import Evidence, Numbers, asked, slopes

BY_DIFFERENCES = "central differences"
ROUGH = 1e-7


def numbers(*shape: int, seed: int = 0) -> Any:
    """A float64 tensor; nothing about it has to be declared."""
    return tf.constant(np.random.default_rng(seed).normal(size=shape))


def plain(tensor: Any) -> Numbers:
    found: Numbers = tensor.numpy()
    return found


# ------------------------------------------------------------------ 1


def element_used_twice() -> Iterator[Evidence]:
    with wrt.record() as t:
        x = numbers(5)
        y = 2 * x[2] + tf.reduce_sum(x)
    expected = slopes(lambda x: 2 * x[2] + x.sum(), plain(x))
    yield asked("d(y) / d(x)[2]", d(y) / d(x)[2], expected[2], BY_DIFFERENCES, tolerance=ROUGH)


# ------------------------------------------------------------------ 2


def plain_index() -> Iterator[Evidence]:
    with wrt.record() as t:
        x = numbers(5)
        y = 2 * x[0]
    yield asked("d(y) / d(x)", d(y) / d(x), [2, 0, 0, 0, 0], "by hand")


def gathered() -> Iterator[Evidence]:
    with wrt.record() as t:
        x = numbers(5)
        y = 2 * tf.gather(x, [0])
    yield asked("d(y)[0] / d(x)", d(y)[0] / d(x), [2, 0, 0, 0, 0], "by hand")


def masked() -> Iterator[Evidence]:
    with wrt.record() as t:
        x = numbers(5)
        y = 2 * tf.boolean_mask(x, [True, False, False, False, False])
    yield asked("d(y)[0] / d(x)", d(y)[0] / d(x), [2, 0, 0, 0, 0], "by hand")


# ------------------------------------------------------------------ 3


def element_of_itself() -> Iterator[Evidence]:
    with wrt.record() as t:
        x = numbers(3, 3)
        y = x * 1
    expected = np.zeros((3, 3))
    expected[1, 2] = 1
    yield asked("d(x)[1, 2] / d(x)", d(x)[1, 2] / d(x), expected, "a one at [1, 2]")
    yield asked("d(y)[1, 2] / d(x)", d(y)[1, 2] / d(x), expected, "a one at [1, 2]")


def element_of_a_product() -> Iterator[Evidence]:
    with wrt.record() as t:
        x, w = numbers(2, 3), numbers(3, 2, seed=1)
        z = tf.matmul(x, w)
    expected = slopes(lambda x: sum(x[0, k] * plain(w)[k, 0] for k in range(3)), plain(x))
    yield asked("d(z)[0, 0] / d(x)", d(z)[0, 0] / d(x), expected, BY_DIFFERENCES, tolerance=ROUGH)


def total() -> Iterator[Evidence]:
    with wrt.record() as t:
        x = numbers(2, 3)
        s = tf.reduce_sum(x)
    yield asked("d(s) / d(x)", d(s) / d(x), np.ones((2, 3)), "ones, by hand")
    yield asked("d(s) / d(x)[1, 0]", d(s) / d(x)[1, 0], 1.0, "one, by hand")


def pixel_to_feature() -> Iterator[Evidence]:
    with wrt.record() as t:
        image, kernel = numbers(1, 8, 8, 3), numbers(3, 3, 3, 4, seed=1)
        m = tf.nn.conv2d(image, kernel, strides=1, padding="VALID")
    weight = plain(kernel)[0, 2, 1, 2]  # pixel (4, 7) lies at (0, 2) of the window that starts at (4, 5)
    yield asked("d(m)[0, 4, 5, 2] / d(image)[0, 4, 7, 1]", d(m)[0, 4, 5, 2] / d(image)[0, 4, 7, 1], weight, "weight")
    yield asked("d(m)[0, 4, 5, 2] / d(image)[0, 0, 0, 1]", d(m)[0, 4, 5, 2] / d(image)[0, 0, 0, 1], 0.0, "out of reach")


# ------------------------------------------------------------------ 5


def itself() -> Iterator[Evidence]:
    with wrt.record() as t:
        y = numbers(2, 2) * 3
        total = tf.reduce_sum(y)
    yield asked("d(y) / d(y)", d(y) / d(y), np.eye(4).reshape(2, 2, 2, 2), "the identity")
    yield asked("d(total) / d(y)", d(total) / d(y), np.ones((2, 2)), "ones: the gradient of the sum")


def square() -> Iterator[Evidence]:
    with wrt.record() as t:
        x = numbers(4)
        y = x**2
    yield asked("d(y) / d(x)", d(y) / d(x), np.diag(2 * plain(x)), "diag(2x), by hand")


def jacobian() -> Iterator[Evidence]:
    with wrt.record() as t:
        x, w = numbers(6), numbers(6, 8, seed=1)
        y = tf.tanh(tf.linalg.matvec(w, x, transpose_a=True)) * x[0]
    expected = slopes(lambda x: np.tanh(x @ plain(w)) * x[0], plain(x))
    yield asked("d(y) / d(x)", d(y) / d(x), expected, BY_DIFFERENCES, tolerance=ROUGH)
    yield asked("d(y)[2:4] / d(x)[::2]", d(y)[2:4] / d(x)[::2], expected[2:4, ::2], "a block of that", tolerance=ROUGH)
