"""What questions cost in TensorFlow next to tape.gradient, tape.jacobian and tape.batch_jacobian.

    python -m benchmarks.tensorflow [--seconds 3] [--compiled]

Every contender starts from the same numbers. "with the run" counts the forward run under the recorder or the tape; "run
given" starts from a finished one. With --compiled, rivals wrapped in tf.function and warmed up stand beside them: they
trace once for all inputs and hide every intermediate, which a recording of one real run cannot do.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf

import wrt
from benchmarks.timing import Measured, compare, save
from wrt import d

Network = Callable[[Any], Any]


def mlp(*widths: int, batch: int = 1) -> tuple[Network, Any]:
    """Linear layers with tanh between them."""
    generator = np.random.default_rng(0)
    weights = [tf.constant(generator.normal(size=s).astype("f4") / s[0] ** 0.5) for s in pairwise(widths)]

    def network(x: Any) -> Any:
        for w in weights:
            x = tf.tanh(x @ w)
        return x

    return network, tf.constant(generator.normal(size=(batch, widths[0])).astype("f4"))


def images(layers: int = 3, side: int = 8) -> tuple[Network, Any]:
    """Convolutions of three channels, the picture keeps its size."""
    generator = np.random.default_rng(0)
    kernels = [tf.constant(generator.normal(size=(3, 3, 3, 3)).astype("f4") * 0.2) for _ in range(layers)]

    def network(x: Any) -> Any:
        for kernel in kernels:
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
        return x

    return network, tf.constant(generator.normal(size=(1, side, side, 3)).astype("f4"))


def recurrent(steps: int = 50, width: int = 64) -> tuple[Network, Any]:
    network, x = mlp(width, width)

    def unrolled(x: Any) -> Any:
        for _ in range(steps):
            x = network(x)
        return x

    return unrolled, x


def taped(network: Network, x: Any) -> tuple[Any, Any]:
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = network(x)
    return tape, y


def one_element(name: str, network: Network, x: Any, **how: Any) -> list[Measured]:
    """d(y)[i] / d(x) against tape.gradient(y[i], x)."""

    def by_hand() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reshape(network(x), (-1,))[3]
        return tape.gradient(y, x)

    def ours() -> Any:
        t = wrt.trace(network, x)
        flat = np.unravel_index(3, t.output.shape)
        return (d(t.output)[flat] / d(t.inputs[0])).value

    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = network(x)
        element = tf.reshape(y, (-1,))[3]
    t = wrt.trace(network, x)
    spot = np.unravel_index(3, t.output.shape)
    top, bottom = d(t.output)[spot], d(t.inputs[0])
    assert np.allclose(ours(), by_hand(), rtol=1e-5, atol=1e-7)
    given = {"tape.gradient": lambda: tape.gradient(element, x)}
    return [
        compare(f"{name}: one element, with the run", ours, {"tape.gradient": by_hand}, **how),
        compare(f"{name}: one element, run given", lambda: (top / bottom).value, given, limit=1.25, **how),
    ]


def dense(name: str, network: Network, x: Any, *, batched: bool, compiled: bool, **how: Any) -> list[Measured]:
    """The whole Jacobian against everything a tape offers for it."""

    def with_tape(ask: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        def run() -> Any:
            tape, y = taped(network, x)
            return ask(tape, y)

        return run

    asks: dict[str, Callable[[Any, Any], Any]] = {
        "jacobian": lambda tape, y: tape.jacobian(y, x),
        "jacobian, no pfor": lambda tape, y: tape.jacobian(y, x, experimental_use_pfor=False),
    }
    if batched:
        asks["batch_jacobian"] = lambda tape, y: tape.batch_jacobian(y, x)
    rivals = {f"tape.{word}": with_tape(ask) for word, ask in asks.items()}
    if compiled:
        best = asks["batch_jacobian" if batched else "jacobian"]
        rivals["compiled by tf.function"] = tf.function(with_tape(best), autograph=False)

    def ours() -> Any:
        t = wrt.trace(network, x)
        return (d(t.output) / d(t.inputs[0])).value

    expected = with_tape(asks["jacobian"])().numpy()
    assert np.abs(ours().numpy() - expected).max() <= 1e-5 * np.abs(expected).max()
    t = wrt.trace(network, x)
    tape, y = taped(network, x)
    m, n = int(tf.size(y)), int(tf.size(x))
    given = {word: (lambda ask=ask: ask(tape, y)) for word, ask in asks.items()}
    again = lambda: (d(t.output) / d(t.inputs[0])).value
    return [
        compare(f"{name} {m} x {n}, with the run", ours, rivals, limit=None if compiled else 1.0, **how),
        compare(f"{name} {m} x {n}, run given", again, given, limit=1.0, **how),
    ]


PROBLEMS: dict[str, Callable[[], tuple[Network, Any]]] = {
    "MLP": lambda: mlp(64, 64, 16),
    "wide MLP": lambda: mlp(256, 256, 256, 256),
    "tall MLP": lambda: mlp(16, 256, 1024),
    "convolutions": images,
    "RNN of 50 steps": recurrent,
    "batched MLP": lambda: mlp(32, 32, 32, batch=16),
}


def main(arguments: list[str]) -> int:
    """Print every ratio, wins and losses alike; 0 unless a limit was missed with --strict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--compiled", action="store_true", help="also against rivals inside tf.function")
    parser.add_argument("--strict", action="store_true", help="fail where a limit is missed")
    chosen = parser.parse_args(arguments)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    how: dict[str, Any] = {"seconds": chosen.seconds}
    print(f"TensorFlow {tf.__version__}, CPU, one thread")
    measured: list[Measured] = []

    def told(some: list[Measured]) -> None:
        measured.extend(some)
        print(*some, sep="\n", flush=True)

    for name in ("convolutions", "RNN of 50 steps"):
        told(one_element(name, *PROBLEMS[name](), **how))
    for name, make in PROBLEMS.items():
        told(dense(name, *make(), batched=name == "batched MLP", compiled=chosen.compiled, **how))
    print(f"saved {save('tensorflow', measured, tensorflow=tf.__version__).name}")
    return 1 if chosen.strict and not all(one.met for one in measured) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
