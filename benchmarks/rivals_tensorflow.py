"""Whole Jacobians in TensorFlow: wrt next to `tape.jacobian` and `tape.batch_jacobian`, eager and compiled.

    python -m benchmarks.rivals_tensorflow [--rounds 5]

Everything starts from the bare function. Cold is the first answer; warm the next: rivals run forward again, wrt has the
run recorded ("wrt") or records it again ("wrt, run anew"). The clock is the time of all threads of the process, the
smallest of several turns. Losses are printed like wins.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

import wrt
from benchmarks.rival_row import Row, dense_weights
from benchmarks.timing import OUT
from wrt import d
from wrt._plan import cache

Network = Callable[[Any], Any]


def network(*widths: int) -> Callable[[Any], Network]:
    weights = dense_weights(*widths)

    def make(dtype: Any) -> Network:
        layers = [tf.constant(w, dtype) for w in weights]

        def run(x: Any) -> Any:
            for w in layers[:-1]:
                x = tf.tanh(x @ w)
            return x @ layers[-1]

        return run

    return make


def burgers(dtype: Any) -> Network:
    def run(u: Any) -> Any:
        inner = 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) - u[1:-1] * (u[2:] - u[:-2])
        return tf.concat([u[:1], inner, u[-1:]], 0)

    return run


def convolutions(dtype: Any) -> Network:
    generator = np.random.default_rng(0)
    kernels = [tf.constant(generator.normal(size=(3, 3, a, b)) * 0.2, dtype) for a, b in pairwise((3, 8, 8, 3))]

    def run(x: Any) -> Any:
        for kernel in kernels:
            x = tf.tanh(tf.nn.conv2d(x, kernel, 1, "SAME"))
        return x

    return run


PROBLEMS: list[tuple[str, Callable[[Any], Network], tuple[int, ...]]] = [
    ("dense network 256^4", network(256, 256, 256, 256), (1, 256)),
    ("network 1024 to 16", network(1024, 256, 256, 16), (1, 1024)),
    ("autoencoder 784-128-16-128-784", network(784, 128, 16, 128, 784), (1, 784)),
    ("64 samples x 32", network(32, 64, 32), (64, 32)),
    ("Burgers, n = 2000", burgers, (2000,)),
    ("three 3x3 convolutions, 3 x 24 x 24", convolutions, (1, 24, 24, 3)),
]


def timed(run: Callable[[], Any]) -> float:
    begun = time.process_time()
    run()
    return 1e3 * (time.process_time() - begun)


def tape_jacobian(f: Network, x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.jacobian(y, x)


def batch_jacobian(f: Network, x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.batch_jacobian(y, x)


def measure(name: str, make: Callable[[Any], Network], shape: tuple[int, ...], rounds: int) -> Row:
    f = make(tf.float32)
    numbers = np.random.default_rng(1).normal(size=shape).astype("float32")
    x = tf.constant(numbers)
    row = Row(name)
    kept: dict[str, Any] = {}

    def ask() -> Any:
        t = kept["t"] = wrt.trace(f, x)
        return (d(t.output) / d(t.inputs[0])).value

    cache.forget()
    row.cold["wrt"] = timed(ask)
    J = d(kept["t"].output) / d(kept["t"].inputs[0])
    truth = tape_jacobian(make(tf.float64), tf.constant(numbers.astype("float64"))).numpy()
    row.disagreement = float(np.abs(J.numpy().reshape(truth.shape) - truth).max() / np.abs(truth).max())
    row.notes.append(f"{J.explain().strategy}, {J.explain().passes} passes")
    compiled = tf.function(lambda x: tape_jacobian(f, x))
    rivals: dict[str, Callable[[], Any]] = {"tape.jacobian": lambda: tape_jacobian(f, x)}
    rivals["compiled tape.jacobian"] = lambda: compiled(x)
    if name.startswith("64 samples"):
        expert = tf.function(lambda x: batch_jacobian(f, x))
        rivals["batch_jacobian (blocks alone)"] = lambda: batch_jacobian(f, x)
        rivals["compiled batch_jacobian (blocks alone)"] = lambda: expert(x)
    for label, run in rivals.items():
        row.cold[label] = timed(run)
    ready = {"wrt": lambda: (d(kept["t"].output) / d(kept["t"].inputs[0])).value, "wrt, run anew": ask, **rivals}
    for _ in range(rounds):
        for label, run in ready.items():
            row.warm[label] = min(row.warm.get(label, float("inf")), timed(run))
    return row


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    rows = []
    for name, make, shape in PROBLEMS:
        if chosen.only in name:
            rows.append(measure(name, make, shape, chosen.rounds))
            row = rows[-1]
            print(f"{row.name}   ({'; '.join(row.notes)}; off by {row.disagreement:.0e})")
            for kind, times in (("cold", row.cold), ("warm", row.warm)):
                print(f"    {kind} ms: " + "  ".join(f"{label} {value:.2f}" for label, value in times.items()), flush=True)
    OUT.mkdir(exist_ok=True)
    told = {"tensorflow": tf.__version__, "rows": [asdict(row) for row in rows]}
    (OUT / "rivals_tensorflow.json").write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
