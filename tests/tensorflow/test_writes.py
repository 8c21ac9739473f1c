"""A tensor filled by functional updates: elements of one tensor, writes, versions."""

import math

import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt import d

T = 10


def put(h: tf.Tensor, k: int, value: tf.Tensor) -> tf.Tensor:
    return tf.tensor_scatter_nd_update(h, [[k]], [value])


def recurrence(x: tf.Tensor) -> tf.Tensor:
    h = tf.zeros(T, tf.float64)
    h = tf.tensor_scatter_nd_update(h, [[0]], [x])
    for k in range(1, T):
        h = tf.tensor_scatter_nd_update(h, [[k]], [tf.tanh(h[k - 1])])
    return h


def test_every_element_of_one_tensor_with_respect_to_every_other() -> None:
    t = wrt.trace(recurrence, tf.constant(0.7, tf.float64))
    h = t["h"].value.numpy()
    slopes = 1 - h**2  # of the tanh that made each element
    J = (d(t["h"]) / d(t["h"])).numpy()
    for i in range(T):
        for j in range(T):
            expected = math.prod(slopes[j + 1 : i + 1]) if i >= j else 0.0
            assert abs(J[i, j] - expected) < 1e-12
            assert abs(float(d(t["h"])[i] / d(t["h"])[j]) - expected) < 1e-12


def test_two_steps_back_against_central_differences() -> None:
    def second_order(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        h = tf.tensor_scatter_nd_update(tf.zeros(T, tf.float64), [[0], [1]], [a, b])
        for k in range(2, T):
            h = put(h, k, h[k - 1] * h[k - 2] + tf.tanh(h[k - 1]))
        return h

    def twin(start: dict[int, float]) -> list[float]:
        h = [0.7, -0.4]
        for k in range(T):
            if k >= 2:
                h.append(h[k - 1] * h[k - 2] + math.tanh(h[k - 1]))
            h[k] += start.get(k, 0.0)
        return h

    t = wrt.trace(second_order, tf.constant(0.7, tf.float64), tf.constant(-0.4, tf.float64))
    J = (d(t["h"]) / d(t["h"])).numpy()
    eps = 1e-6
    for j in range(T):
        column = (np.array(twin({j: eps})) - np.array(twin({j: -eps}))) / (2 * eps)
        assert np.allclose(J[:, j], column, atol=1e-7)


def test_the_live_tensor_means_the_same_as_the_name() -> None:
    x = tf.constant(0.7, tf.float64)
    with wrt.record():
        h = recurrence(x)
    expected = math.prod(1 - h.numpy()[4:10] ** 2)
    assert abs(float(d(h)[9] / d(h)[3]) - expected) < 1e-12


def test_writes_and_versions() -> None:
    t = wrt.trace(recurrence, tf.constant(0.7, tf.float64))
    writes = t["h"].writes
    assert [write.k for write in writes] == list(range(1, T + 1))
    assert [write.region for write in writes] == [f"[{k}]" for k in range(T)]
    assert writes[3].where is not None
    assert "tf.tanh(h[k - 1])" in writes[3].where.text
    assert np.count_nonzero(t["h"].at(3).value) == 3
    assert not t["h"].at(0).value.numpy().any()
    with pytest.raises(wrt.errors.WrongIndex, match="10 times"):
        t["h"].at(11)


def test_an_element_written_twice_means_the_last_value_and_at_gives_the_first() -> None:
    def f(x: tf.Tensor) -> tf.Tensor:
        h = tf.tensor_scatter_nd_update(tf.zeros(3, tf.float64), [[0]], [x])
        h = put(h, 1, h[0] ** 2)
        h = put(h, 0, h[1] * 5)
        h = put(h, 2, h[0] * 7)
        return h

    t = wrt.trace(f, tf.constant(3.0, tf.float64))
    J = d(t["h"])[2] / d(t["h"])[0]
    assert float(J) == 7.0
    assert "written more than once" in str(J.explain())
    assert float(d(t["h"])[2] / d(t["h"].at(1))[0]) == 2 * 3.0 * 5 * 7
    assert float(d(t["h"])[2] / d(t["h"])[1]) == 35.0


def test_slices_rows_and_additions_are_writes() -> None:
    def f(x: tf.Tensor) -> tf.Tensor:
        h = tf.zeros((4, 2), tf.float64)
        h = tf.tensor_scatter_nd_update(h, [[0], [2]], [x, x * 2])
        h = tf.tensor_scatter_nd_add(h, [[1, 0]], [h[0, 0] * 3])
        h = tf.raw_ops.TensorStridedSliceUpdate(
            input=h, begin=[3, 0], end=[4, 2], strides=[1, 1], value=tf.reverse(h[:1], [1])
        )
        return h

    x = tf.constant([2.0, 5.0], tf.float64)
    t = wrt.trace(f, x)
    assert [write.region for write in t["h"].writes] == ["[0:3:2, :]", "[1, 0]", "[3, :]"]
    assert np.array_equal(d(t["h"])[3] / d(t["h"])[0], [[0, 1], [1, 0]])
    assert float(d(t["h"])[1, 0] / d(t["h"])[0, 0]) == 3.0
    assert np.array_equal(d(t.output)[2] / d(t.inputs[0]), 2 * np.eye(2))


def test_an_update_under_another_name_is_an_ordinary_operation() -> None:
    x = tf.constant([1.0, 2.0])
    with wrt.record() as t:
        g = tf.tensor_scatter_nd_update(x, [[0]], [5.0])
        y = tf.reduce_sum(g * x)
    assert t["g"].writes == []
    assert np.array_equal(d(y) / d(g), [1.0, 2.0])
    assert np.array_equal(d(y) / d(x), [5.0, 4.0])


def test_the_graph_tells_the_writes() -> None:
    t = wrt.trace(recurrence, tf.constant(0.7, tf.float64))
    told = [node.write for node in t.graph if node.write is not None]
    assert [(write.k, write.elements) for write in told] == [(k, 1) for k in range(1, T + 1)]
