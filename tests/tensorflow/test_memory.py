"""A recording keeps no tensor alive that neither its tape nor a name needs; what is gone is computed again for `why`."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt import d
from wrt._backends.tensorflow import compat


def alive(t: wrt.Trace) -> int:
    gc.collect()
    log = t.output._recording.log
    return sum(log.at_hand(number) is not None for number in log.producer)


def sums(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum((((x + 1.0) - 2.0) * 3.0 + 4.0) / 8.0 - 9.0)


def rounded(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(tf.cast(x * 2.0, tf.int32) // 2 + 1, tf.float32) * x)


@pytest.mark.parametrize("f", [sums, rounded])
def test_no_more_is_kept_than_a_plain_tape_keeps(f: Callable[[tf.Tensor], tf.Tensor]) -> None:
    x, seen = tf.constant([1.0, 2.0]), []

    def noted(op: str, inputs: Any, attributes: Any, outputs: Any, *rest: Any) -> None:
        seen.extend(map(weakref.ref, outputs))

    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        compat.add_callback(noted)
        try:
            y = f(x)
        finally:
            compat.remove_callback(noted)
    gc.collect()
    by_a_tape = sum(one() is not None for one in seen)
    t = wrt.trace(f, x)
    assert alive(t) <= by_a_tape
    np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).numpy(), tape.gradient(y, x))


def test_what_is_gone_is_computed_again_and_goes_with_the_question() -> None:
    t = wrt.trace(sums, tf.constant([1.0, 2.0]))
    before = alive(t)
    evidence = t.output._recording.evidence()
    numbers = [evidence.value(node.outputs[0]) for node in evidence.graph.nodes]
    np.testing.assert_allclose(numbers[2], [0.0, 3.0])  # (x + 1 - 2) * 3
    np.testing.assert_allclose(numbers[-1], -18 + (4 + 7) / 8)
    del evidence, numbers
    assert alive(t) == before


def test_random_numbers_are_kept() -> None:
    t = wrt.trace(lambda x: tf.reduce_sum(x * tf.cast(tf.random.uniform([3]) > 0.5, tf.float32)), tf.ones(3))
    evidence = t.output._recording.evidence()
    mask = next(node for node in evidence.graph.nodes if node.op == "Cast")
    np.testing.assert_array_equal(evidence.value(mask.outputs[0]), (d(t.output) / d(t.inputs[0])).numpy())


@pytest.mark.parametrize("named", [True, False])
def test_names_keep_what_they_stand_for(named: bool) -> None:
    def f(x: tf.Tensor) -> tf.Tensor:
        if named:
            h = x + 1.0
            return tf.reduce_sum(h - 2.0)
        return tf.reduce_sum(x + 1.0 - 2.0)

    t = wrt.trace(f, tf.constant([1.0, 2.0]))
    if named:
        np.testing.assert_array_equal(t["h"].value, [2.0, 3.0])
    else:
        assert "h" not in t.names
