"""The engine: a plain pass is plain, the same question has the same bits, and structure alone decides how it is swept."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt import d
from wrt._backends.tensorflow import compat, engine
from wrt._core.protocol import CannotSweep
from wrt._core.thresholds import KEPT_ENGINES


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


WEIGHTS = [tf.constant(numbers(40, 40, seed=k) / 6) for k in range(3)]


def network(x: Any) -> Any:
    for w in WEIGHTS:
        x = tf.tanh(x @ w)
    return x


def recurrent(x: Any) -> Any:
    h = tf.zeros((1, 40))
    for k in range(12):
        h = tf.tanh(h @ WEIGHTS[0] + x[k : k + 1])
    return h


def rolled(x: Any) -> Any:
    return tf.sin(tf.roll(x, 1, axis=-1)) * x


def layer(x: Any) -> Any:
    return tf.tanh(x @ WEIGHTS[0])


PROGRAMS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "a few rows": (layer, (1, 40)),
    "a network": (network, (8, 40)),
    "a recurrence": (recurrent, (12, 40)),
    "rolled": (rolled, (4, 50)),
}


def ask(name: str) -> Any:
    f, shape = PROGRAMS[name]
    t = wrt.trace(f, tf.constant(numbers(*shape, seed=9)))
    return d(t.output) / d(t.inputs[0])


def digest(J: Any) -> str:
    assert J.certificate or J.value is not None
    return hashlib.sha256(J.numpy().tobytes()).hexdigest()


def asked(f: Callable[[Any], Any], *shape: int) -> tuple[Any, Any, engine.TapeEngine]:
    recording: Any = wrt.trace(f, tf.constant(numbers(*shape)))._one
    y, x = recording.output, recording.inputs[0]
    return y, x, recording.engine(y, [x])


def seeds(value: Any) -> Any:
    return tf.reshape(tf.eye(value.size, dtype=value.dtype), (value.size, *value.shape))


# ---- plain passes


def test_a_plain_pass_is_never_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("traced")

    monkeypatch.setattr(compat, "compile_for", fail)
    monkeypatch.setattr(compat, "for_each", fail)
    y, _, found = asked(network, 8, 40)
    one = [found.plain(seeds(y)[k : k + 1])[0] for k in (0, 7)]
    all_rows = found.pull(seeds(y), batched=False)
    assert (all_rows.method, all_rows.calls, all_rows.refused) == ("one by one", y.size, ())
    assert np.array_equal(tf.concat(one, 0), tf.gather(all_rows.arrays[0], [0, 7]))


def test_a_plain_pass_is_the_gradient_of_a_tape() -> None:
    y, x, found = asked(network, 8, 40)
    with tf.GradientTape() as tape:
        tape.watch(x.key.tensor)
        again = network(x.key.tensor)
    seed = tf.constant(numbers(*y.shape, seed=3))
    assert np.array_equal(found.plain(seed[None])[0][0], tape.gradient(again, x.key.tensor, output_gradients=seed))


def test_a_pull_that_announces_pushes_is_the_same_pull() -> None:
    y, x, found = asked(network, 8, 40)
    seed = tf.constant(numbers(1, *y.shape, seed=3))
    assert np.array_equal(found.plain(seed)[0], found.plain(seed, then_push=True)[0])
    pushed = found.push([seeds(x)]).arrays[0]
    rows = found.pull(seeds(y), batched=False).arrays[0]
    assert np.allclose(tf.reshape(pushed, (x.size, y.size)), tf.transpose(tf.reshape(rows, (y.size, x.size))), atol=1e-6)


def test_several_tensors_are_pushed_at_once() -> None:
    a, b = tf.constant(numbers(70)), tf.constant(numbers(70, seed=1))
    recording: Any = wrt.trace(lambda a, b: tf.sin(a) * b, a, b)._one
    found = recording.engine(recording.output, recording.inputs)
    eye = tf.eye(70)
    pushed = found.push([eye, eye]).arrays[0]
    assert np.allclose(pushed, np.diag(np.cos(a) * b + np.sin(a)), atol=1e-6)
    assert np.allclose(found.push([None, eye]).arrays[0], np.diag(np.sin(a)), atol=1e-6)


def test_what_no_path_leads_to_is_none() -> None:
    recording: Any = wrt.trace(lambda a, b: (a * 2, b * 3), tf.ones(100), tf.ones(100))._one
    found = recording.engine(recording.output[0], recording.inputs)
    for batched in (True, False):
        assert found.pull(tf.eye(100), batched=batched).arrays[1] is None
    assert found.push([None, tf.eye(100)]).arrays == [None]


# ---- methods


def test_many_rows_are_traced_and_few_are_not() -> None:
    y, _, found = asked(network, 8, 40)
    assert found.pull(seeds(y)).method == "pfor"
    assert found.pull(seeds(y)[:3]).method == "one by one"
    y, _, found = asked(recurrent, 12, 40)
    assert found.pull(seeds(y)).method == "one by one, traced"


def test_what_was_asked_before_changes_no_method() -> None:
    y, _, found = asked(network, 8, 40)
    methods = [found.pull(seeds(y)[:count]).method for count in (3, 320, 64, 3, 100, 320, 3)]
    fresh = [asked(network, 8, 40)[2].pull(seeds(y)[:count]).method for count in (3, 320, 64, 3, 100, 320, 3)]
    assert methods == fresh


def test_the_same_rows_are_traced_once() -> None:
    y, _, found = asked(network, 8, 40)
    traced = found.recording.traced
    first = found.pull(seeds(y))
    assert len(traced) == 1
    again = found.recording.engine(found.y, found.xs).pull(seeds(y))
    assert len(traced) == 1
    assert np.array_equal(first.arrays[0], again.arrays[0])
    for count in range(300, 320):
        found.pull(seeds(y)[:count])
    assert len(traced) == KEPT_ENGINES


def test_a_method_that_is_refused_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def fail(*_: Any) -> Any:
        tried.append(1)
        raise ValueError("no rule for this\nand pages more")

    monkeypatch.setattr(compat, "for_each", fail)
    y, _, found = asked(layer, 10, 40)
    for _ in range(3):
        swept = found.pull(seeds(y))
        assert swept.refused == ("pfor: no rule for this",)
        assert swept.method == "one by one"
    assert len(tried) == 1


def test_a_gradient_that_cannot_be_differentiated_again_cannot_be_pushed() -> None:
    def only_forward(x: Any) -> Any:
        return tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=x, labels=tf.ones((2, 3)))[0]

    y, x, found = asked(only_forward, 2, 3)
    try:
        pushed = found.push([seeds(x)]).arrays[0]
    except CannotSweep:
        return
    rows = found.pull(seeds(y), batched=False).arrays[0]
    assert np.allclose(tf.reshape(pushed, (6, 2)), tf.transpose(tf.reshape(rows, (2, 6))), atol=1e-6)


# ---- the same question, the same bits


@pytest.mark.parametrize("name", PROGRAMS)
def test_ten_asks_have_the_same_bits(name: str) -> None:
    first = ask(name)
    expected = digest(first)
    kept = [ask(name) for _ in range(3)]
    assert [digest(J) for J in kept] == [expected] * 3
    f, shape = PROGRAMS[name]
    t = wrt.trace(f, tf.constant(numbers(*shape, seed=9)))
    for _ in range(10):
        J = d(t.output) / d(t.inputs[0])
        assert digest(J) == expected
        assert J.certificate


def test_a_fresh_process_and_a_used_one_have_the_same_bits() -> None:
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from tests.tensorflow.test_engine import PROGRAMS, ask, digest
order = list(PROGRAMS) if sys.argv[1] == "fresh" else [*PROGRAMS, *reversed(PROGRAMS)] * 2
found = {{name: digest(ask(name)) for name in order}}
print(sorted(found.items()))
"""
    here = {name: digest(ask(name)) for name in reversed(PROGRAMS)}
    for kind in ("fresh", "used"):
        ran = subprocess.run([sys.executable, "-c", script, kind], capture_output=True, text=True, check=True, env={**os.environ})
        assert ran.stdout.strip().splitlines()[-1] == str(sorted(here.items()))


@pytest.mark.parametrize("way", [None, "pull"])
def test_the_rows_of_tf_roll_are_right_at_every_ask(way: Any) -> None:
    """TensorFlow's own rule for a batch of tf.roll along a negative axis is wrong: the proof notices, and plain rows answer."""
    x = np.random.default_rng(4).normal(size=(3, 120))
    t = wrt.trace(lambda x: tf.roll(x, 1, axis=-1) * x, tf.constant(x))
    expected = np.zeros((360, 360))
    here = np.arange(360)
    before = np.roll(here.reshape(3, 120), 1, axis=-1).reshape(-1)
    expected[here, here] += x.reshape(-1)[before]
    expected[here, before] += x.reshape(-1)
    for _ in range(10):
        J = d(t.output) / d(t.inputs[0])
        with wrt.options(way=way):
            np.testing.assert_array_equal(J.numpy().reshape(360, 360), expected)
        assert J.certificate
        assert way is None or any("does not agree" in line for line in J.explain().fallbacks)
