"""`python -m tests.sympy.compare jax --count 1000`: how far one framework is from SymPy, over random expressions."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import sympy

import wrt
from tests.sympy.expressions import Problem, problem
from wrt import d

NAMES = ("sin", "cos", "tanh", "atan", "exp", "log", "sqrt")
COMPILED, OFTEN = 5, 8  # of JAX's that are asked so often that they are compiled; NumPy answers what is asked once


def functions(framework: str) -> tuple[dict[str, Any], Callable[[Any], Any], Callable[[Any], Any]]:
    """The elementary functions, how to make an array, and how to join numbers into one."""
    if framework == "torch":
        torch = import_module("torch")
        names = {name: getattr(torch, name) for name in NAMES}
        return names, lambda a: torch.tensor(a, requires_grad=True), torch.stack
    if framework == "tensorflow":
        tf = import_module("tensorflow")
        names = {name: getattr(tf.math, name) for name in NAMES}
        return names, tf.constant, tf.stack
    jax = import_module("jax")
    jax.config.update("jax_enable_x64", True)
    names = {name: getattr(jax.numpy, {"atan": "arctan"}.get(name, name)) for name in NAMES}
    return names, jax.numpy.asarray, jax.numpy.stack


def as_function(given: Problem, names: dict[str, Any], stack: Callable[[Any], Any]) -> Callable[[Any], Any]:
    made = sympy.lambdify(given.symbols, list(given.expressions), modules=[names])
    return lambda x: stack(made(*(x[k] for k in range(len(given.symbols)))))


def distance(framework: str, seed: int, kit: Any) -> float:
    """The largest error of any entry, relative to the largest entry (at least one)."""
    names, array, stack = kit
    given = problem(seed)
    t = wrt.trace(as_function(given, names, stack), array(given.point))
    for _ in range(OFTEN if framework == "jax" and seed < COMPILED else 1):
        found = (d(t.output) / d(t.inputs[0])).numpy()
    truth = given.jacobian()
    assert found.shape == truth.shape
    return float(np.abs(found - truth).max() / max(1.0, np.abs(truth).max()))


def compare(framework: str, count: int, start: int = 0) -> dict[str, Any]:
    kit = functions(framework)
    distances = {seed: distance(framework, seed, kit) for seed in range(start, start + count)}
    worst = max(distances, key=lambda seed: distances[seed])
    return {"framework": framework, "count": count, "worst": distances[worst], "seed": worst}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=("torch", "tensorflow", "jax"))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--start", type=int, default=0)
    asked = parser.parse_args()
    print(json.dumps(compare(asked.framework, asked.count, asked.start)))
