"""A recording goes with the last thing that needs it, at once: no cycle keeps its tape and its tensors for the collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

import wrt
from wrt import d
from wrt._backends.tensorflow.backend import BACKEND

W = tf.Variable([[1.0, 2.0], [3.0, 4.0]])


def network(x: Any) -> Any:
    h = tf.tanh(x @ W)
    y = h * h
    return y


def an_element(t: wrt.Trace) -> Any:
    return (d(t.output)[0, 0] / d(t.inputs[0])[0, 1]).value


def a_row(t: wrt.Trace) -> Any:
    return (d(t.output)[0, 0] / d(t.inputs[0])).value


def a_name(t: wrt.Trace) -> Any:
    return (d(t["y"])[0, 0] / d(t["h"])).value, t.names, repr(t.names), t["h"].line


def a_variable(t: wrt.Trace) -> Any:
    return (d(t.output)[0, 0] / d(W)).value


def the_graph(t: wrt.Trace) -> Any:
    return t.graph


def a_reason(t: wrt.Trace) -> Any:
    return str(wrt.why(t["y"], t["h"]))


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("question", [an_element, a_row, a_name, a_variable, the_graph, a_reason])
def test_a_recording_goes_when_nobody_holds_it(no_collector: None, question: Callable[[wrt.Trace], Any]) -> None:
    t = wrt.trace(network, tf.constant([[0.3, 0.5]]))
    question(t)
    recording, made = weakref.ref(t._one), weakref.ref(t["h"].value)
    wrt.trace(network, tf.constant([[0.1, 0.2]]))  # the last one is kept, for questions about bare tensors
    del t
    assert recording() is None
    assert made() is None


def test_a_block_goes_too(no_collector: None) -> None:
    with wrt.record() as t:
        x = tf.constant([1.0, 2.0])
        y = x * x
    assert (d(y)[0] / d(x)[0]).value == 2.0
    recording = weakref.ref(t._one)
    with wrt.record():
        pass
    del t, x, y
    assert recording() is None


def test_an_answer_keeps_the_recording_that_it_needs(no_collector: None) -> None:
    t = wrt.trace(network, tf.constant([[0.3, 0.5]]))
    J = d(t.output) / d(t.inputs[0])
    output = t.output
    del t
    wrt.trace(network, tf.constant([[0.1, 0.2]]))
    assert J[0, 0].value.shape == (1, 2)
    assert BACKEND.recorded(output.value) is not None


def test_a_handle_is_the_same_each_time() -> None:
    t = wrt.trace(network, tf.constant([[0.3, 0.5]]))
    assert t.output is t.output
    assert t.inputs[0] is t.inputs[0]
