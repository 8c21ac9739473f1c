"""Eighty-seven operations by every method: each pull and push equals a plain loop of tape.gradient, and differences."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt import d
from wrt._backends.tensorflow import engine
from wrt._backends.tensorflow.engine import TapeEngine
from wrt._core.protocol import CannotSweep

X = np.random.default_rng(8).uniform(0.3, 0.9, size=(3, 4))
INDEX = tf.constant([2, 0, 2])

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    name: getattr(tf.math, name)
    for name in (
        "sin cos tan asin acos atan sinh cosh tanh asinh acosh1 atanh exp expm1 log log1p sqrt rsqrt square reciprocal abs "
        "negative sigmoid softplus erf erfinv lgamma digamma bessel_i0e bessel_i1e cumsum cumprod l2_normalize "
        "reduce_sum reduce_mean reduce_prod reduce_max reduce_min reduce_logsumexp reduce_std reduce_variance"
    ).split()
    if hasattr(tf.math, name)
} | {
    "relu": lambda x: tf.nn.relu(x - 0.5),
    "gelu": tf.nn.gelu,
    "selu": tf.nn.selu,
    "swish": tf.nn.swish,
    "softmax": tf.nn.softmax,
    "log_softmax": tf.nn.log_softmax,
    "leaky_relu": lambda x: tf.nn.leaky_relu(x - 0.5),
    "matmul": lambda x: x @ tf.transpose(x),
    "einsum": lambda x: tf.einsum("ij,kj->ik", x, x * x),
    "tensordot": lambda x: tf.tensordot(x, x, [[1], [1]]),
    "inverse": lambda x: tf.linalg.inv(x @ tf.transpose(x) + tf.eye(3, dtype=x.dtype)),
    "determinant": lambda x: tf.linalg.det(x @ tf.transpose(x) + tf.eye(3, dtype=x.dtype)),
    "cholesky": lambda x: tf.linalg.cholesky(x @ tf.transpose(x) + tf.eye(3, dtype=x.dtype)),
    "solve": lambda x: tf.linalg.solve(x[:, :3] + 2 * tf.eye(3, dtype=x.dtype), x),
    "norm": tf.norm,
    "gather": lambda x: tf.gather(x, INDEX) ** 2,
    "gather_nd": lambda x: tf.gather_nd(x, [[0, 1], [2, 3], [0, 1]]) ** 2,
    "scatter_nd": lambda x: tf.scatter_nd([[1], [0], [1]], x**2, (2, 4)),
    "segment_sum": lambda x: tf.math.segment_sum(x**2, [0, 0, 1]),
    "unsorted_segment_max": lambda x: tf.math.unsorted_segment_max(x, [1, 0, 1], 2),
    "strided slice": lambda x: x[::-2, 1:3] ** 2,
    "concat": lambda x: tf.concat([x, x * x], 1),
    "stack": lambda x: tf.stack([x[0], x[2] ** 2]),
    "split": lambda x: tf.add(*tf.split(x * x, 2, axis=1)),
    "unstack": lambda x: tf.multiply(*tf.unstack(x)[:2]),
    "transpose": lambda x: tf.transpose(x) ** 2,
    "reshape": lambda x: tf.reshape(x, (2, 6)) ** 2,
    "tile": lambda x: tf.tile(x, (2, 1)) ** 2,
    "pad": lambda x: tf.pad(x, [[1, 0], [0, 2]]) ** 2,
    "roll": lambda x: tf.roll(x, 1, 0) * x,
    "reverse": lambda x: tf.reverse(x, [1]) * x,
    "broadcast_to": lambda x: tf.broadcast_to(x[0], (5, 4)) ** 2,
    "where": lambda x: tf.where(x > 0.6, x * x, 3 * x),
    "clip": lambda x: tf.clip_by_value(x, 0.4, 0.8),
    "top_k": lambda x: tf.math.top_k(x, 2).values,
    "sort": lambda x: tf.sort(x, axis=1),
    "maximum": lambda x: tf.maximum(x[0], x[1]),
    "pow": lambda x: x ** x[::-1],
    "division": lambda x: x[0] / x[1:],
    "atan2": lambda x: tf.atan2(x[0], x[1]),
    "conv2d": lambda x: tf.nn.conv2d(tf.reshape(x, (1, 3, 4, 1)), tf.reshape(x[:2, :2], (2, 2, 1, 1)), 1, "SAME"),
    "max_pool": lambda x: tf.nn.max_pool2d(tf.reshape(x, (1, 3, 4, 1)), 2, 1, "VALID"),
    "avg_pool": lambda x: tf.nn.avg_pool2d(tf.reshape(x, (1, 3, 4, 1)) ** 2, 2, 1, "SAME"),
    "cross entropy": lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits([1, 0, 3], x),
    "layer norm": lambda x: (x - tf.reduce_mean(x, 1, True)) / tf.math.reduce_std(x, 1, True),
    "cast": lambda x: tf.cast(tf.cast(x, tf.complex128) ** 2, tf.float64),
    "fft": lambda x: tf.math.real(tf.signal.fft(tf.cast(x, tf.complex128))),
}


def plain(f: Callable[[Any], Any]) -> np.ndarray:
    """Rows by a loop of tape.gradient."""
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        elements = tf.unstack(tf.reshape(f(x), (-1,)))
    rows = [tape.gradient(element, x) for element in elements]
    return np.array([np.zeros(X.shape) if row is None else tf.convert_to_tensor(row).numpy() for row in rows])


def numeric(f: Callable[[Any], Any], eps: float = 1e-6) -> np.ndarray:
    columns = []
    for k in range(X.size):
        step = np.zeros(X.size)
        step[k] = eps
        step = step.reshape(X.shape)
        columns.append((f(tf.constant(X + step)).numpy() - f(tf.constant(X - step)).numpy()).reshape(-1) / (2 * eps))
    return np.array(columns).T.reshape(-1, *X.shape)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_method_agrees(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f = OPERATIONS[name]
    expected = plain(f)
    scale = np.abs(expected).max()
    assert np.abs(numeric(f) - expected).max() < 1e-6 * max(1.0, scale)
    t = wrt.trace(f, tf.constant(X))
    y, x = t._one.output, t._one.inputs[0]
    m = len(expected)
    seeds = tf.reshape(tf.eye(m, dtype=tf.float64), (m, *y.shape))
    tangents = tf.reshape(tf.eye(X.size, dtype=tf.float64), (X.size, *X.shape))
    for methods in ([engine.PFOR], [engine.TRACED], []):
        monkeypatch.setattr(TapeEngine, "_methods", lambda self, way, count, methods=methods: methods if count > 1 else [])
        found = t._one.engine(y, [x])
        swept = found.pull(seeds)
        assert swept.method == (methods[0] if methods and m > 1 and not swept.refused else engine.ONE_BY_ONE)
        assert np.abs(swept.arrays[0].numpy() - expected).max() <= 1e-13 * scale, swept.method
        assert np.array_equal(found.plain(seeds[:1])[0], found.pull(seeds[:1]).arrays[0])
        try:
            pushed = found.push([tangents])
        except CannotSweep:
            continue
        got = pushed.arrays[0].numpy().reshape(X.size, m).T.reshape(expected.shape)
        assert np.abs(got - expected).max() <= 1e-12 * scale, pushed.method
    monkeypatch.undo()
    J = d(t.output) / d(t.inputs[0])
    assert np.abs(J.numpy().reshape(expected.shape) - expected).max() <= 1e-12 * scale


def test_an_operation_without_a_batching_rule_is_no_error_to_read_about(capfd, monkeypatch) -> None:
    monkeypatch.setattr(TapeEngine, "_methods", lambda self, way, count: [engine.PFOR])
    x = tf.constant(np.random.default_rng(0).normal(size=(1, 6, 6, 2)))
    kernel = tf.constant(np.random.default_rng(1).normal(size=(3, 3, 2, 2)))
    with wrt.record():
        y = tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "VALID")
    J = d(y) / d(x)
    moved = tf.nn.depthwise_conv2d(tf.eye(72, dtype=tf.float64).numpy().reshape(72, 6, 6, 2), kernel, [1, 1, 1, 1], "VALID")
    np.testing.assert_allclose(J.numpy().reshape(-1, 72).T, moved.numpy().reshape(72, -1), atol=1e-12)
    assert "DepthwiseConv2d" in str(J.explain().fallbacks)  # told where one looks for it
    assert "pfor" not in "".join(capfd.readouterr())
