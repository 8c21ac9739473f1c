"""A custom gradient that reads numbers out of TensorFlow answers once; differentiated again, it is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt import d
from wrt.errors import EngineRefused

POINT = np.array([0.3, 0.5])
ONES = np.ones(2)


def sine_by(gradient: Callable[[Any, Any], Any]) -> Any:
    @tf.custom_gradient
    def sine(x: Any) -> Any:
        return tf.sin(x), lambda u: gradient(u, x)

    return wrt.trace(lambda x: 2.0 * sine(x), tf.constant(POINT))


def cosine(values: Any) -> Any:
    return np.cos(values)


class Cosine:
    def at(self, values: Any) -> Any:
        return np.cos(values)


def imported_inside(u: Any, x: Any) -> Any:
    import numpy as numeric
    from numpy import cos

    return u * numeric.where(x > 0, cos(x), 0.0)


def under_another_name(u: Any, x: Any) -> Any:
    compute = np.cos
    factor = compute(x)
    return u * factor


def in_steps(u: Any, x: Any) -> Any:
    moved = x + np.zeros(2)
    shifted = moved * 1.0
    return u * np.cos(shifted)


@pytest.mark.parametrize(
    "gradient",
    [
        lambda u, x: tf.constant(u.numpy() * np.cos(x.numpy())),
        lambda u, x: u * np.cos(x.numpy()),
        lambda u, x: tf.stack([u[k] * np.cos(float(x[k])) for k in range(2)]),
        lambda u, x: u * np.cos(x),
        lambda u, x: tf.multiply(u, np.cos(x)),
        lambda u, x: tf.constant(np.asarray(u)) * tf.cos(x),
        lambda u, x: np.asarray(u) * np.cos(x),
        lambda u, x: u * tf.constant([float(c) for c in np.cos(x)], tf.float64),
        lambda u, x: u * tf.stack([np.cos(e) for e in x]),
        lambda u, x: u * tf.cos(np.frombuffer(memoryview(x))),
        lambda u, x: u * cosine(x),
        lambda u, x: u * Cosine().at(x),
        imported_inside,
        under_another_name,
        in_steps,
    ],
)
def test_numbers_that_were_read_are_refused_in_second_order(gradient: Callable[[Any, Any], Any]) -> None:
    t = sine_by(gradient)
    x = t.inputs[0]
    np.testing.assert_allclose((d(t.output) / d(x)).value, np.diag(2 * np.cos(POINT)), rtol=1e-12)
    with pytest.raises(EngineRefused) as caught:
        _ = (d(t.output)[0] / d(x) / d(x)).value
    what, where, remedy = str(caught.value).splitlines()
    assert what == "a custom gradient on the way cannot be differentiated again"
    assert where.startswith("  test_numpy_reads.py:")
    assert "reads numbers out of TensorFlow" in where
    assert remedy == "  compute the gradient with TensorFlow's operations, on tensors"


def test_a_gradient_of_tensors_is_differentiated_though_it_looks_at_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    def gradient(u: Any, x: Any) -> Any:
        print(u, f"{x}")
        return u * tf.cos(x) if bool(tf.reduce_all(x < 10.0)) else u

    t = sine_by(gradient)
    found = (d(t.output)[0] / d(t.inputs[0]) / d(t.inputs[0])).value
    np.testing.assert_allclose(found, [[-2 * np.sin(POINT[0]), 0], [0, 0]], rtol=1e-12)
    assert "tf.Tensor" in capsys.readouterr().out


def root(size: float) -> Any:
    return np.sqrt(size)


@pytest.mark.parametrize(
    "factor",
    [
        lambda x: np.ones(2),
        lambda x: np.ones(x.shape),
        lambda x: np.sqrt(2.0) / root(2.0),
        lambda x: np.float64(1.0),
        lambda x: np.prod(x.shape) / 2.0,
        lambda x: ONES,
        lambda x: tf.cast(1, np.float64),
        lambda x: tf.cos(x) / tf.cos(x) * np.ones_like(POINT),
    ],
)
def test_constants_of_numpy_are_differentiated(factor: Callable[[Any], Any]) -> None:
    t = sine_by(lambda u, x: u * tf.cos(x) * factor(x))
    found = (d(t.output)[0] / d(t.inputs[0]) / d(t.inputs[0])).value
    np.testing.assert_allclose(found, [[-2 * np.sin(POINT[0]), 0], [0, 0]], rtol=1e-12, atol=1e-15)


def test_a_profiler_of_the_users_goes_on() -> None:
    t = sine_by(lambda u, x: u * tf.cos(x))
    called: set[str] = set()

    def profile(frame: Any, event: str, arg: Any) -> None:
        called.add(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        _ = (d(t.output)[0] / d(t.inputs[0]) / d(t.inputs[0])).value
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(before)
    assert "<lambda>" in called
