"""The snapshot fixture can fail on TensorFlow's and Keras' objects and modes."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests._snapshot import Changed, unchanged


class Subject:
    def __init__(self) -> None:
        self.variable = tf.Variable([1.0, 2.0])
        self.model = keras.Sequential([keras.layers.Dense(2), keras.layers.BatchNormalization()])
        self.model(tf.ones((2, 3)))


CHANGES: dict[str, tuple[Callable[[Subject], Any], str]] = {
    "assign": (lambda s: s.variable.assign([3.0, 4.0]), "variable values"),
    "trainable": (lambda s: setattr(s.model.layers[0], "trainable", False), "trainable: was True"),
    "moving averages": (lambda s: s.model(tf.ones((2, 3)), training=True), "moving_mean values"),
    "patched call": (lambda s: setattr(s.model.layers[0], "call", lambda x: x), "patched"),
    "functions run eagerly": (lambda s: tf.config.run_functions_eagerly(True), "functions run eagerly"),
    "operation seeds": (lambda s: tf.random.normal((2,)), "operation seeds"),
    "global seed": (lambda s: tf.random.set_seed(5), "global seed"),
}


@pytest.fixture
def seeded() -> Iterator[None]:
    tf.random.set_seed(3)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str) -> None:
    change, words = CHANGES[name]
    subject = Subject()
    with pytest.raises(Changed, match=words), unchanged(variable=subject.variable, model=subject.model):
        change(subject)


def test_a_tape_left_open_is_seen() -> None:
    tape = tf.GradientTape()
    with pytest.raises(Changed, match="no open tape"), unchanged():
        tape.__enter__()
    tape.__exit__(None, None, None)


def test_a_gradient_changes_nothing() -> None:
    subject = Subject()
    with unchanged(subject.variable, subject.model), tf.GradientTape() as tape:
        y = tf.reduce_sum(subject.variable**2)
        tape.gradient(y, subject.variable)
