"""Operators take a short way while a recording lasts; the numbers, the errors and the operations are TensorFlow's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt import d
from wrt._backends.tensorflow.operators import MADE, lean_operators

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.matmul]


def tensor(*shape: int, dtype: Any = tf.float32, seed: int = 0) -> Any:
    return tf.cast(np.random.default_rng(seed).normal(size=shape), dtype)


PAIRS = {
    "plain": lambda: (tensor(3, 3), tensor(3, 3, seed=1)),
    "broadcast": lambda: (tensor(3, 3), tensor(3, seed=1)),
    "double": lambda: (tensor(3, 3, dtype=tf.float64), tensor(3, 3, dtype=tf.float64, seed=1)),
    "half": lambda: (tensor(3, 3, dtype=tf.float16), tensor(3, 3, dtype=tf.float16, seed=1)),
    "bfloat16": lambda: (tensor(3, 3, dtype=tf.bfloat16), tensor(3, 3, dtype=tf.bfloat16, seed=1)),
    "whole numbers": lambda: (tf.constant([[1, 2], [3, 4]]), tf.constant([[5, 6], [7, 8]])),
    "complex": lambda: (tf.complex(tensor(2, 2), tensor(2, 2)), tf.complex(tensor(2, 2), tensor(2, 2, seed=1))),
    "a number": lambda: (tensor(3, 3), 2.0),
    "an array": lambda: (tensor(3, 3), np.ones((3, 3), "f4")),
    "a variable": lambda: (tensor(3, 3), tf.Variable(tensor(3, 3, seed=1))),
    "stacks": lambda: (tensor(2, 3, 3), tensor(2, 3, 3, seed=1)),
    "a stack and a matrix": lambda: (tensor(2, 3, 3), tensor(3, 3, seed=1)),
    "empty": lambda: (tensor(0, 3), tensor(3, 3)[:, :3]),
    "two dtypes": lambda: (tensor(3, 3), tensor(3, 3, dtype=tf.float64)),
    "shapes that do not fit": lambda: (tensor(2, 3), tensor(5, 4)),
    "a list": lambda: (tensor(2), [1.0, 2.0]),
}


def outcome(compute: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """The result to the last bit, or what the error says."""
    try:
        found = compute(x, y)
    except Exception as error:
        return type(error), str(error)
    return found.dtype, found.shape.as_list(), found.numpy().tobytes()


@pytest.mark.parametrize("compute", OPERATORS)
@pytest.mark.parametrize("pair", PAIRS)
def test_the_outcome_is_tensorflows_own(pair: str, compute: Callable[[Any, Any], Any]) -> None:
    x, y = PAIRS[pair]()
    plain = outcome(compute, x, y)
    with lean_operators():
        assert outcome(compute, x, y) == plain


def test_the_same_operations_are_recorded() -> None:
    def by_operators(x: Any, y: Any) -> Any:
        return (x @ y + x) * y / (x - y)

    def by_functions(x: Any, y: Any) -> Any:
        return tf.divide(tf.multiply(tf.add(tf.matmul(x, y), x), y), tf.subtract(x, y))

    x, y = tensor(2, 2), tensor(2, 2, seed=1)
    one, other = wrt.trace(by_operators, x, y), wrt.trace(by_functions, x, y)
    assert [node.op for node in one.graph.nodes] == ["MatMul", "AddV2", "Mul", "Sub", "RealDiv"]
    assert sorted(node.op for node in other.graph.nodes) == sorted(node.op for node in one.graph.nodes)
    assert all(node.where is not None and node.where.function.endswith("by_operators") for node in one.graph.nodes)


def test_operators_of_wrt_itself_are_not_the_users() -> None:
    x = tensor(3, dtype=tf.float64)
    with wrt.record() as outer, wrt.record() as inner:
        y = x * x
        _ = (d(y) / d(x)).value
        _ = (d(y)[0] / d(x)[0] / d(x)[0]).value
        z = y - x
    for t in (outer, inner):
        assert [node.op for node in t.graph.nodes] == ["Mul", "Sub"]
    np.testing.assert_allclose((d(z)[1] / d(x)[1]).value, 2 * x[1] - 1, rtol=1e-14)


def test_derivatives_through_operators_are_the_closed_forms() -> None:
    x, y = tensor(2, 2, dtype=tf.float64), tensor(2, 2, dtype=tf.float64, seed=1) + 3.0
    t = wrt.trace(lambda x, y: x @ y + x / y - x * x, x, y)
    found = (d(t.output)[0, 1] / d(t.inputs[0])).value
    expected = np.zeros((2, 2))
    expected[0] += y.numpy()[:, 1]
    expected[0, 1] += 1 / y.numpy()[0, 1] - 2 * x.numpy()[0, 1]
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_operators_are_as_before_afterwards() -> None:
    before = {name: vars(tf.Tensor)[name] for name in MADE}
    with lean_operators(), lean_operators():
        assert all(vars(tf.Tensor)[name] is not before[name] for name in MADE)
    assert {name: vars(tf.Tensor)[name] for name in MADE} == before


def test_an_operator_of_somebody_elses_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.Tensor, "__mul__", lambda x, y: tf.zeros_like(x))
    t = wrt.trace(lambda x: x * x, tf.constant([1.0, 2.0]))
    np.testing.assert_array_equal(t.output.value, [0.0, 0.0])


def test_operators_inside_a_graph_make_nodes_of_it() -> None:
    x = tensor(2, 2)
    with lean_operators(), tf.Graph().as_default() as graph:
        made = tf.constant(x.numpy()) @ tf.constant(x.numpy())
        assert made.graph is graph
        assert made.op.type == "MatMul"
