"""A custom gradient that reads numbers out of TensorFlow answers once; differentiated again, it is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt import d
from wrt.errors import EngineRefused

POINT = np.array([0.3, 0.5])


def sine_by(gradient: Callable[[Any, Any], Any]) -> Any:
    @tf.custom_gradient
    def sine(x: Any) -> Any:
        return tf.sin(x), lambda u: gradient(u, x)

    return wrt.trace(lambda x: 2.0 * sine(x), tf.constant(POINT))


@pytest.mark.parametrize(
    "gradient",
    [
        lambda u, x: tf.constant(u.numpy() * np.cos(x.numpy())),
        lambda u, x: u * np.cos(x.numpy()),
        lambda u, x: tf.stack([u[k] * np.cos(float(x[k])) for k in range(2)]),
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
    assert where.startswith("  test_read_within.py:")
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
