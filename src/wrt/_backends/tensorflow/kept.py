"""What running a model changes besides its result: moving averages, seed counters, random states; all put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


@contextmanager
def kept(objects: Sequence[Any]) -> Iterator[None]:
    """Keras models among the objects run inside without a trace of it in their variables or in the generator."""
    variables = [variable for one in objects for variable in getattr(one, "non_trainable_variables", ())]
    before = [tf.identity(tf.convert_to_tensor(variable)) for variable in variables]
    generator = tf.random.get_global_generator()
    state = tf.identity(generator.state)
    try:
        yield
    finally:
        for variable, saved in zip(variables, before, strict=True):
            variable.assign(saved)
        generator.state.assign(state)
