"""The few functions in which scenarios are written, once for each framework; nothing is imported before it is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

import wrt
from tests.finite.reference.backend import BACKEND as FINITE
from wrt._backends import FRAMEWORKS, load


@dataclass(frozen=True)
class Framework:
    """A framework as the scenarios see it."""

    name: str
    array: Callable[[Any], Any]
    functions: dict[str, Callable[..., Any]] = field(repr=False)
    rough: float = 1.0
    """By how much its answers may be rougher than exact ones: finite differences are."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            return self.functions[name]
        except KeyError:
            raise AttributeError(name) from None

    def trace(self, f: Callable[..., Any], *args: Any) -> Any:
        if self.name != "finite":
            return wrt.trace(f, *args)
        from wrt._notation.trace import Trace

        return Trace({"finite": FINITE.trace(f, args, {})})

    def cannot(self, way: str) -> str | None:
        """The sentence that says why this framework has no such question."""
        return (FINITE if self.name == "finite" else load(self.name)).capabilities().get(way)


def framework(name: str) -> Framework:
    """By name; imports it."""
    return MAKERS[name]()


def _torch() -> Framework:
    torch = import_module("torch")

    def filled(x: Any, length: int, step: Callable[[Any], Any]) -> Any:
        h = torch.zeros(length, dtype=x.dtype)
        h[0] = x
        for k in range(1, length):
            h[k] = step(h[k - 1])
        return h

    names = ("sin", "cos", "exp", "tanh", "sqrt", "where", "stack", "abs")
    functions = {name: getattr(torch, name) for name in names}
    functions |= {
        "sum": lambda x, axis=None: x.sum() if axis is None else x.sum(axis),
        "matvec": lambda w, x: w @ x,
        "reshape": lambda x, shape: x.reshape(shape),
        "transpose": lambda x: x.T,
        "to_complex": lambda x: torch.complex(x, torch.zeros_like(x)),
        "filled": filled,
    }
    return Framework("torch", lambda a: torch.tensor(a, requires_grad=np.asarray(a).dtype.kind in "fc"), functions)


def _jax() -> Framework:
    jnp, lax = import_module("jax.numpy"), import_module("jax.lax")

    def filled(x: Any, length: int, step: Callable[[Any], Any]) -> Any:
        h = jnp.zeros(length, x.dtype)
        h = h.at[0].set(x)
        for k in range(1, length):
            h = h.at[k].set(step(h[k - 1]))
        return h

    names = ("sin", "cos", "exp", "tanh", "sqrt", "where", "stack", "abs", "sum", "reshape", "transpose")
    functions = {name: getattr(jnp, name) for name in names}
    functions |= {
        "matvec": lambda w, x: w @ x,
        "to_complex": lambda x: lax.complex(x, jnp.zeros_like(x)),
        "filled": filled,
    }
    return Framework("jax", jnp.asarray, functions)


def _tensorflow() -> Framework:
    tf = import_module("tensorflow")

    def filled(x: Any, length: int, step: Callable[[Any], Any]) -> Any:
        h = tf.zeros(length, x.dtype)
        h = tf.tensor_scatter_nd_update(h, [[0]], x[None])
        for k in range(1, length):
            h = tf.tensor_scatter_nd_update(h, [[k]], step(h[k - 1])[None])
        return h

    names = ("sin", "cos", "exp", "tanh", "sqrt", "where", "stack", "abs", "reshape", "transpose")
    functions = {name: getattr(tf, name) for name in names}
    functions |= {
        "sum": tf.reduce_sum,
        "matvec": tf.linalg.matvec,
        "to_complex": lambda x: tf.complex(x, tf.zeros_like(x)),
        "filled": filled,
    }
    return Framework("tensorflow", tf.constant, functions)


def _finite() -> Framework:
    names = ("sin", "cos", "exp", "tanh", "sqrt", "where", "stack", "abs", "sum", "reshape", "transpose")
    functions: dict[str, Callable[..., Any]] = {name: getattr(np, name) for name in names}

    def filled(x: Any, length: int, step: Callable[[Any], Any]) -> Any:
        h = np.zeros(length, x.dtype)
        h[0] = x
        for k in range(1, length):
            h[k] = step(h[k - 1])
        return h

    functions |= {"matvec": lambda w, x: w @ x, "to_complex": lambda x: x + 0j, "filled": filled}
    return Framework("finite", np.array, functions, rough=1e4)


MAKERS = {"torch": _torch, "tensorflow": _tensorflow, "jax": _jax, "finite": _finite}
assert MAKERS.keys() == {*FRAMEWORKS, "finite"}, "a framework without an adapter"
