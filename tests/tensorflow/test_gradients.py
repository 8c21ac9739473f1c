"""The lean gradients answer bit for bit as TensorFlow's own, and only while wrt sweeps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorflow.python.framework import ops

import wrt
from wrt import d
from wrt._backends.tensorflow import compat, gradients
from wrt._backends.tensorflow.gradients import LEAN, RULES, lean

DTYPES = (tf.float64, tf.float32, tf.float16, tf.bfloat16)
Draw = Callable[..., Any]


def numbers(draw: Draw, dtype: Any, shape: tuple[int, ...]) -> tf.Tensor:
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    return tf.cast(generator.uniform(0.2, 2.0, shape) * generator.choice([-1, 1], shape), dtype)


def any_shape(draw: Draw, *, least: int = 0) -> tuple[int, ...]:
    shapes = [(), (0,), (3,), (2, 0), (2, 3), (1, 4), (2, 1, 3)]
    return draw(st.sampled_from([shape for shape in shapes if len(shape) >= least]))


def one(op: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda draw, dtype: (op, [numbers(draw, dtype, any_shape(draw))])


def positive(op: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda draw, dtype: (op, [tf.abs(numbers(draw, dtype, any_shape(draw)))])


def two(op: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def case(draw: Draw, dtype: Any) -> Any:
        shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3)).input_shapes
        return op, [numbers(draw, dtype, shape) for shape in shapes]

    return case


def selected(draw: Draw, dtype: Any) -> Any:
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, max_side=3)).input_shapes
    mask = numbers(draw, tf.float32, shapes[0]) > 0
    return lambda x, y: tf.where(mask, x, y), [numbers(draw, dtype, shape) for shape in shapes[1:]]


def product(batch: bool) -> Callable[..., Any]:
    def case(draw: Draw, dtype: Any) -> Any:
        n, k, m = (draw(st.integers(1, 4)) for _ in range(3))
        ta, tb = draw(st.booleans()), draw(st.booleans())
        before = draw(st.sampled_from([(2,), (2, 3)])) if batch else ()
        a, b = (k, n) if ta else (n, k), (m, k) if tb else (k, m)
        other = (1,) * len(before) if draw(st.booleans()) else before  # broadcast: TensorFlow's own business
        given = [numbers(draw, dtype, (*before, *a)), numbers(draw, dtype, (*other, *b))]
        return lambda a, b: tf.matmul(a, b, transpose_a=ta, transpose_b=tb), given

    return case


def convolved(op: Callable[..., Any], after: Callable[[int], int]) -> Callable[..., Any]:
    def case(draw: Draw, dtype: Any) -> Any:
        channels, stride = draw(st.integers(1, 3)), draw(st.integers(1, 2))
        padding = draw(st.sampled_from(["SAME", "VALID", [[0, 0], [1, 2], [0, 1], [0, 0]]]))
        can_dilate = stride == 1 and dtype == tf.float32 and isinstance(padding, str)  # on a CPU
        dilation = draw(st.integers(1, 2)) if can_dilate else 1
        x = numbers(draw, dtype, (draw(st.integers(1, 2)), 7, 6, channels))
        kernel = numbers(draw, dtype, (3, 2, channels, after(channels)))
        return lambda x, k: op(x, k, strides=[1, stride, stride, 1], padding=padding, dilations=[dilation] * 2), [x, kernel]

    return case


def summed(op: Callable[..., Any]) -> Callable[..., Any]:
    def case(draw: Draw, dtype: Any) -> Any:
        x = numbers(draw, dtype, any_shape(draw))
        rank = len(x.shape)
        some = st.lists(st.integers(-rank, rank - 1), unique_by=lambda axis: axis % rank) if rank else st.just([])
        axes, keep = draw(st.one_of(st.none(), some)), draw(st.booleans())
        return lambda x: op(x, axes, keepdims=keep), [x]

    return case


def sliced(draw: Draw, dtype: Any) -> Any:
    keys = [np.s_[1], np.s_[..., 0], np.s_[::-1], np.s_[:, None, 1:], np.s_[0, 1:, ::2], np.s_[-1:, ...]]
    key = draw(st.sampled_from(keys))
    return lambda x: x[key], [numbers(draw, dtype, (3, 4, 2))]


CASES: dict[str, Callable[..., Any]] = {
    "AddV2": two(tf.add),
    "BatchMatMulV2": product(batch=True),
    "BiasAdd": lambda draw, dtype: (tf.nn.bias_add, [numbers(draw, dtype, (2, 4, 3)), numbers(draw, dtype, (3,))]),
    "Conv2D": convolved(tf.nn.conv2d, lambda channels: 2),
    "DepthwiseConv2dNative": convolved(tf.nn.depthwise_conv2d, lambda channels: 2),
    "Elu": one(tf.nn.elu),
    "Exp": one(tf.exp),
    "ExpandDims": one(lambda x: tf.expand_dims(x, 0)),
    "Log": positive(tf.math.log),
    "MatMul": product(batch=False),
    "Maximum": two(tf.maximum),
    "Mean": summed(tf.reduce_mean),
    "Minimum": two(tf.minimum),
    "Mul": two(tf.multiply),
    "Neg": one(tf.negative),
    "RealDiv": two(tf.divide),
    "Relu": one(tf.nn.relu),
    "Reshape": one(lambda x: tf.reshape(x, (1, -1) if 0 not in x.shape else (0,))),
    "Rsqrt": positive(tf.math.rsqrt),
    "SelectV2": selected,
    "Sigmoid": one(tf.sigmoid),
    "Softmax": lambda draw, dtype: (tf.nn.softmax, [numbers(draw, dtype, any_shape(draw, least=1))]),
    "Sqrt": positive(tf.sqrt),
    "Square": one(tf.square),
    "SquaredDifference": two(tf.math.squared_difference),
    "Squeeze": one(lambda x: tf.squeeze(x)),
    "StridedSlice": sliced,
    "Sub": two(tf.subtract),
    "Sum": summed(tf.reduce_sum),
    "Tanh": one(tf.tanh),
    "Transpose": one(lambda x: tf.transpose(x)),
}


def bits(tensor: Any) -> Any:
    return None if tensor is None else (tensor.dtype, tensor.numpy() + 0)  # no difference between 0 and -0


def same(found: Any, expected: Any) -> bool:
    if found is None or expected is None:
        return found is expected
    return bits(found)[0] == bits(expected)[0] and np.array_equal(bits(found)[1], bits(expected)[1], equal_nan=True)


@contextmanager
def called_for_gradients(function: Callable[..., Any]) -> Iterator[None]:
    compat.call_for_gradients(function)
    try:
        yield
    finally:
        compat.call_for_gradients(compat.gradient_function)


def pulled(f: Callable[..., Any], inputs: list[Any], seed: Any = None) -> list[Any]:
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = f(*inputs)
    return tape.gradient(y, inputs, output_gradients=seed)


def calls_of(op: str, f: Callable[..., Any], inputs: list[Any], seed: Any) -> list[tuple[Any, ...]]:
    """What the tape asks for an operation in a pull."""
    calls = []

    def spy(*call: Any) -> Any:
        calls.append(call)
        return compat.gradient_function(*call)

    with called_for_gradients(spy):
        pulled(f, inputs, seed)
    return [call for call in calls if call[0] == op]


def test_every_rule_has_a_case() -> None:
    assert CASES.keys() == RULES.keys()


@pytest.mark.parametrize("op", CASES)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_rule_answers_bit_for_bit_as_tensorflow_does(op: str, data: st.DataObject) -> None:
    f, inputs = CASES[op](data.draw, data.draw(st.sampled_from(DTYPES[:2] if "Conv" in op else DTYPES)))
    y = f(*inputs)
    seed = numbers(data.draw, y.dtype, tuple(y.shape))
    for name, attributes, count, given_, outputs, seeds, skip, scope in calls_of(op, f, inputs, seed):
        wanted = [k for k in range(count) if k not in (skip or ())]
        for some in chain.from_iterable(combinations(wanted, k) for k in range(len(wanted))):
            skipped = tuple(sorted({*(skip or ()), *some}))
            expected = compat.gradient_function(name, attributes, count, given_, outputs, seeds, skipped or None, scope)
            expected = list(expected) if isinstance(expected, (list, tuple)) else [expected]
            found = lean(name, attributes, count, given_, outputs, seeds, skipped or None, scope)
            assert len(found) == len(expected) == count
            for k in set(wanted) - set(some):
                assert same(found[k], expected[k]), (inputs, attributes, skipped)


@pytest.mark.parametrize("op", CASES)
@settings(max_examples=3, deadline=None, derandomize=True)
@given(data=st.data())
def test_its_gradient_can_be_differentiated_again(op: str, data: st.DataObject) -> None:
    f, inputs = CASES[op](data.draw, tf.float64)
    y = f(*inputs)
    seed = numbers(data.draw, y.dtype, tuple(y.shape))

    def twice() -> list[Any]:
        with tf.GradientTape() as outer:
            outer.watch([*inputs, seed])
            first = pulled(f, inputs, seed)
            total = tf.add_n([tf.reduce_sum(tf.sin(g)) for g in first])
        return outer.gradient(total, [*inputs, seed], unconnected_gradients="zero")

    expected = twice()
    with called_for_gradients(lean):
        for found, known in zip(twice(), expected, strict=True):
            np.testing.assert_allclose(found, known, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- what is left to TensorFlow


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations that a rule answered."""
    by_rule: list[str] = []

    def counting(op: str, rule: Any) -> Any:
        def counted(*call: Any) -> Any:
            found = rule(*call)
            by_rule.extend([op] if found is not None else [])
            return found

        return counted

    monkeypatch.setattr(gradients, "RULES", {op: counting(op, rule) for op, rule in RULES.items()})
    return by_rule


def test_a_question_is_answered_by_the_rules(answered: list[str]) -> None:
    x, w = tf.random.stateless_normal((1, 3), (0, 0)), tf.random.stateless_normal((3, 3), (1, 0))
    t = wrt.trace(lambda x: tf.tanh(x @ w), x)
    found = (d(t.output)[0, 1] / d(t.inputs[0])).value
    assert answered == ["Tanh", "MatMul"]
    assert same(found, pulled(lambda x: tf.tanh(x @ w)[0, 1], [x])[0])
    assert answered == ["Tanh", "MatMul"]  # the user's own tape is none of our business


def test_complex_numbers_and_graphs_are_left_to_tensorflow(answered: list[str]) -> None:
    z = tf.constant([1 + 2j, 3 - 1j], tf.complex128)
    x = tf.constant([1.0, 2.0])
    graph = tf.function(lambda: pulled(tf.tanh, [x], tf.ones(2)) + pulled(tf.tanh, [tf.ones(2)], x))
    with LEAN.held():
        pulled(lambda z: z * tf.exp(z), [z])
        graph()
    assert answered == []


def test_a_seed_of_another_shape_is_left_to_tensorflow(answered: list[str]) -> None:
    @tf.custom_gradient
    def careless(x: Any) -> Any:
        return tf.identity(x), lambda u: tf.reduce_sum(u)  # a number for a vector

    x, b = tf.constant([1.0, 2.0, 3.0]), tf.constant([4.0, 5.0, 6.0])
    f = lambda x, b: careless(x * b)
    expected = pulled(f, [x, b])
    with LEAN.held():
        found = pulled(f, [x, b])
    assert all(map(same, found, expected))
    assert "Mul" not in answered


def test_what_tensorflow_cannot_do_is_refused_in_its_words() -> None:
    x, kernel = tf.ones((1, 7, 7, 1), tf.float64), tf.ones((3, 3, 1, 1), tf.float64)
    f = lambda x, kernel: tf.nn.conv2d(x, kernel, 1, "SAME", dilations=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="dilation rates larger than 1"), LEAN.held():
        pulled(f, [x, kernel])


def test_a_gradient_that_somebody_put_in_place_is_never_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    def guided(op: Any, u: Any) -> Any:
        return tf.nn.relu(u) * tf.cast(op.outputs[0] > 0, u.dtype)

    entry = ops._gradient_registry._registry["Relu"]
    monkeypatch.setitem(entry, "type", guided)
    t = wrt.trace(lambda x: -tf.nn.relu(x), tf.constant([1.0, -2.0]))
    assert (d(t.output)[0] / d(t.inputs[0])).value.numpy().tolist() == [0.0, 0.0]


def test_an_operation_of_its_own_is_examined_by_tensorflows_gradient(answered: list[str]) -> None:
    x = tf.constant([0.5, 1.0])
    y = tf.tanh(x)
    compat.local_pull("Tanh", [x], ("T", x.dtype.as_datatype_enum), [y], [tf.ones(2)])
    assert answered == []


# ---------------------------------------------------------------- only while wrt sweeps


def ask_tape() -> None:
    pulled(tf.tanh, [tf.constant([1.0])])


def test_put_back_after_an_error(answered: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), LEAN.held(), LEAN.held():
        ask_tape()
        raise ZeroDivisionError
    assert answered == ["Tanh"]
    ask_tape()
    assert answered == ["Tanh"]


def test_put_back_after_a_pull_that_failed(answered: list[str]) -> None:
    @tf.custom_gradient
    def broken(x: Any) -> Any:
        return tf.identity(x), lambda u: [][0]  # type: ignore[misc]

    t = wrt.trace(lambda x: tf.tanh(broken(x)), tf.constant([1.0]))
    with pytest.raises(wrt.errors.WrtError):
        _ = (d(t.output)[0] / d(t.inputs[0])).value
    answered.clear()
    ask_tape()
    assert answered == []


def test_put_back_by_the_last_of_several_threads(answered: list[str]) -> None:
    inside, leave = threading.Barrier(3, timeout=20), threading.Event()

    def sweep() -> None:
        with LEAN.held():
            inside.wait()
            leave.wait(20)

    threads = [threading.Thread(target=sweep) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait()
    with LEAN.held():
        pass
    ask_tape()
    assert answered == ["Tanh"]  # still held by others; the numbers are the same
    leave.set()
    for thread in threads:
        thread.join()
    ask_tape()
    assert answered == ["Tanh"]
