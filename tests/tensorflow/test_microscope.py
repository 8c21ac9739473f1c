"""The page of a Keras model: names, layers, variables, and the numbers of a plain tape."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import wrt
from tests.microscope.numbers import decode
from wrt._microscope.model import Microscope
from wrt._microscope.saved import matrix


@pytest.fixture(scope="module")
def seen() -> tuple[Any, Any, Microscope]:
    initial = keras.initializers.RandomNormal(stddev=0.4, seed=3)
    layers = [
        keras.layers.Conv2D(3, 3, activation="tanh", name="conv1", kernel_initializer=initial),
        keras.layers.Flatten(name="flat"),
        keras.layers.Dense(4, name="fc", kernel_initializer=initial),
    ]
    model = keras.Sequential([keras.Input((6, 6, 1)), *layers])
    x = tf.reshape(tf.linspace(-1.0, 1.0, 36), (1, 6, 6, 1))
    return model, x, Microscope(wrt.trace(model, x))


def test_a_row_is_that_of_a_tape(seen: tuple[Any, Any, Microscope]) -> None:
    model, x, glass = seen
    hello = glass.ask("hello", {})
    assert hello["default"]["target"] == "fc"
    for k in range(4):
        asked = {"target": {"name": "fc", "index": [0, k]}, "source": {"name": hello["default"]["source"], "index": None}}
        told = glass.ask("derivative", asked)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x)[0, k]
        np.testing.assert_allclose(decode(told["data"]), tape.gradient(y, x).numpy(), rtol=1e-5, atol=1e-7)


def test_sizes_are_those_of_a_tape(seen: tuple[Any, Any, Microscope]) -> None:
    model, x, glass = seen
    told = glass.ask("sizes", {"target": {"name": "fc", "index": [0, 1]}})["sizes"]
    ids = {node["name"]: str(node["id"]) for node in glass.ask("graph", {})["nodes"]}
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        h = model.layers[0](x)
        y = model.layers[2](model.layers[1](h))[0, 1]
    for name, value in (("conv1", h), (glass.ask("hello", {})["default"]["source"], x)):
        assert told[ids[name]]["max"] == pytest.approx(float(tf.reduce_max(tf.abs(tape.gradient(y, value)))), rel=1e-5)


def test_layers_hold_their_variables_and_outputs(seen: tuple[Any, Any, Microscope]) -> None:
    nodes = {node["name"]: node for node in seen[2].ask("graph", {})["nodes"] if node["name"]}
    kernel = nodes["conv1.kernel"]
    assert (kernel["kind"], kernel["shape"], kernel["dtype"], kernel["ask"]) == ("parameter", [3, 3, 1, 3], "float32", True)
    assert nodes["conv1"]["kind"] == "module-output"
    drawn = seen[2].ask("graph", {})["nodes"]
    assert not [node for node in drawn if node["op"] == "ReadVariableOp"]
    assert not [node for node in drawn if node["gradient"] == "cut"]
    known = {node["id"] for node in drawn}
    assert all(source in known for node in drawn for source in node["inputs"])


def test_channels_stand_last(seen: tuple[Any, Any, Microscope]) -> None:
    told = seen[2].ask("tensor", {"name": "conv1"})
    assert (told["view"], told["axes"]["channel"], told["axes"]["rows"]) == ("planes", 3, 1)
    given = seen[2].ask("tensor", {"name": seen[2].ask("hello", {})["default"]["source"]})
    assert (given["view"], given["axes"]["channel"]) == ("image", 3)


def test_a_column_and_a_whole_matrix(seen: tuple[Any, Any, Microscope], tmp_path: Path) -> None:
    model, x, glass = seen
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = model(x)
    want = tape.jacobian(y, x).numpy()
    source = glass.ask("hello", {})["default"]["source"]
    asked = {"target": {"name": "fc", "index": None}, "source": {"name": source, "index": [0, 2, 3, 0]}}
    told = glass.ask("derivative", asked)
    np.testing.assert_allclose(decode(told["data"]), want[..., 0, 2, 3, 0], rtol=1e-4, atol=1e-6)
    saved = matrix(glass.t, ("fc", glass.t["fc"]), (source, glass.t[source]))
    np.testing.assert_allclose(decode(saved["dense"]), want.reshape(4, 36), rtol=1e-4, atol=1e-6)
