"""Questions of TensorFlow programs, and their truth: tape.gradient, row by row."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

import wrt
from tests.faults.faults import Numbers
from tests.faults.questions import Question
from tests.faults.tensorflow_programs import PROGRAMS
from wrt import d


@cache
def question(name: str, dtype: str) -> Question:
    program = PROGRAMS[name]
    x = tf.cast(tf.constant(program.point()), dtype)
    run = wrt.trace(program.f, x)
    rows, columns = program.rows, program.columns

    def ask() -> object:
        y, at = run.output, run.inputs[0]
        return (d(y)[rows] if rows else d(y)) / (d(at)[columns] if columns else d(at))

    return Question(name, dtype, program, ask, program.chosen(row_loop(program.f, x), run.output.shape, tuple(x.shape)))


def row_loop(f: Any, x: Any) -> Numbers:
    """The truth: one plain gradient for each row."""
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    size = int(np.prod(y.shape))
    found = []
    for row in range(size):
        seed = tf.reshape(tf.one_hot(row, size, dtype=y.dtype), y.shape)
        gradient = tf.convert_to_tensor(tape.gradient(y, x, seed))
        found.append(tf.cast(tf.reshape(gradient, [-1]), tf.float64).numpy())
    return np.stack(found)
