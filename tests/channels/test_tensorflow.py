"""Every way that numbers take in TensorFlow: followed, or refused; never zeros that nobody proved."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import wrt
from tests.channels.judge import differences, judge
from tests.channels.tensorflow_rows import CHANNELS
from wrt import d

CASES = [(happens, program) for happens, programs in CHANNELS.values() for program in programs]


@pytest.mark.parametrize(("happens", "program"), CASES, ids=[program.__name__ for _, program in CASES])
def test_a_channel_is_followed_or_refused(happens: str, program: Any) -> None:
    start = np.array([0.3, 0.7, 1.2])
    x = tf.constant(start)
    truth = differences(lambda array: np.array(program(tf.constant(array), nullcontext)), start, 1e-3)
    judge(happens, lambda: np.array((d(program(x, wrt.record)) / d(x)).value), truth)
