"""Inside TensorFlow's own operations no names are watched; everywhere else they are, whatever happened before."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt._backends.tensorflow.tracing import pause_inside_operations

settrace_is_used = pytest.mark.skipif(sys.version_info >= (3, 12), reason="from 3.12 on, only the user's own code is watched")


def test_the_frames_of_an_operation_are_not_traced() -> None:
    x, called = tf.ones((2, 2)), set()

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        called.add(frame.f_code.co_name)

    def program() -> Any:
        return helper(tf.tanh(x @ x))

    def helper(h: Any) -> Any:
        return tf.reduce_sum(tf.concat([h, h], 0))

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        with pause_inside_operations():
            program()
            assert sys.gettrace() is not watch
        assert sys.gettrace() is watch
    finally:
        sys.settrace(before)
    assert {"program", "helper"} <= called
    assert called.isdisjoint({"binary_op_wrapper", "name_scope", "matmul", "mat_mul", "concat", "reduce_sum"})


def test_names_in_functions_that_tensorflow_calls() -> None:
    x = tf.constant([1.0, 2.0])

    def square(e: Any) -> Any:
        inner = e * e
        return inner

    def program(x: Any) -> Any:
        mapped = tf.map_fn(square, x)
        chosen = tf.cond(tf.reduce_sum(x) > 0, lambda: square(mapped), lambda: mapped)
        return chosen

    t = wrt.trace(program, x)
    assert t["inner", 0].shape == ()
    assert t["inner", 2].shape == (2,)
    np.testing.assert_allclose(t["mapped"].value, [1.0, 4.0])
    np.testing.assert_allclose(t["chosen"].value, [1.0, 16.0])


def test_names_after_an_operation_that_failed() -> None:
    x = tf.ones((2, 3))

    def program(x: Any) -> Any:
        try:
            tf.matmul(x, x)
        except (tf.errors.InvalidArgumentError, ValueError):
            before = x
        assert before is x
        after = x
        h = tf.tanh(after)
        return h

    t = wrt.trace(program, x)
    assert t["h"].shape == t["after"].shape == t["before"].shape == (2, 3)


def test_a_name_after_a_call_that_ran_no_operation() -> None:
    def program(x: Any) -> Any:
        same = tf.convert_to_tensor(x)
        size = tf.rank(x)
        other = same
        return other * tf.cast(size, x.dtype)

    t = wrt.trace(program, tf.ones(3))
    assert t["same"].shape == t["other"].shape == (3,)


def test_the_trace_function_is_as_before_even_after_errors() -> None:
    before = sys.gettrace()

    def program(x: Any) -> Any:
        return tf.matmul(x, tf.ones((5, 5)))

    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        wrt.trace(program, tf.ones((2, 3)))
    assert sys.gettrace() is before


@settrace_is_used
def test_a_frame_that_ends_in_another_thread_switches_nothing_on_there() -> None:
    kept: list[BaseException] = []

    def program(x: Any) -> Any:
        try:
            tf.matmul(x, tf.ones((5, 5)))
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            kept.append(error)
        return x * 2

    seen: list[Any] = []

    def let_go() -> None:
        kept.clear()
        seen.append(sys.gettrace())

    with wrt.record():
        program(tf.ones((2, 3)))
        other = threading.Thread(target=let_go)
        other.start()
        other.join()
    assert seen == [None]

