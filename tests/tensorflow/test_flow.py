"""Through a narrow layer in TensorFlow: as many passes as it is wide, twice; against the product of the layers' own slopes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt import d
from wrt._backends.tensorflow.recording import TensorFlowRecording
from wrt._plan import cache

WIDTHS = (90, 40, 6, 40, 90)
WEIGHTS = [np.random.default_rng(k).normal(size=shape) / shape[0] ** 0.5 for k, shape in enumerate(pairwise(WIDTHS))]


def autoencoder(x: Any) -> Any:
    for w in WEIGHTS:
        x = tf.tanh(x @ w)
    return x


def slope(x: np.ndarray) -> np.ndarray:
    found = np.eye(WIDTHS[0])
    for w in WEIGHTS:
        x = np.tanh(x @ w)
        found = (1 - x.reshape(-1, 1) ** 2) * (w.T @ found)
    return found


def asked(f: Callable[[Any], Any], seed: int) -> tuple[wrt.Derivative, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(1, WIDTHS[0]))
    t = wrt.trace(f, tf.constant(x))
    return d(t.output) / d(t.inputs[0]), x


def test_an_autoencoder_takes_as_many_passes_as_its_code_is_wide() -> None:
    cache.forget()
    for seed in range(2):  # cold, then by the plan of the first
        J, x = asked(autoencoder, seed)
        np.testing.assert_allclose(J.numpy().reshape(90, 90), slope(x), rtol=1e-11, atol=1e-13)
        assert J.explain().strategy == "cut"
        assert J.explain().passes == 13  # 6 and 6, and the certificate


def test_a_residual_around_the_code_leaves_no_cut() -> None:
    J, x = asked(lambda x: autoencoder(x) + x, 3)
    np.testing.assert_allclose(J.numpy().reshape(90, 90), slope(x) + np.eye(90), rtol=1e-11, atol=1e-13)
    assert J.explain().strategy != "cut"


def test_the_wrong_tensor_for_a_cut_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.forget()
    J, x = asked(autoencoder, 4)
    right = TensorFlowRecording.lift_number

    def wrong(self: TensorFlowRecording, number: int, dtype: Any) -> Any:
        found = right(self, number, dtype)
        return found if found is None or found.size != 6 else self.lift(tf.constant(np.ones((1, 6))))

    monkeypatch.setattr(TensorFlowRecording, "lift_number", wrong)
    np.testing.assert_allclose(J.numpy().reshape(90, 90), slope(x), rtol=1e-11, atol=1e-13)
    assert J.explain().strategy != "cut"
    cache.forget()
