"""The table: a function, a point, and its Jacobian in closed form (NumPy). Nothing here knows a framework or wrt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Function = Callable[..., Any]  # f(framework, *xs) -> y
Closed = Callable[..., Any]  # f(*xs as NumPy) -> an array of shape y.shape + x.shape, for each x


@dataclass(frozen=True)
class Scenario:
    """`jacobian` gives one array for each x. `middle`: dy/dh for the variable called h. `second`: d2y / dx0 dx0."""

    name: str
    function: Function
    point: tuple[Any, ...]
    jacobian: Closed
    middle: Closed | None = None
    second: Closed | None = None
    diagonal: bool = False
    extra_passes: int = 2
    """Beyond the shorter side of the Jacobian: a certificate, a test of holomorphy."""
    ways: tuple[str, ...] = ()
    """Questions that only some scenarios have."""

    def __repr__(self) -> str:
        return self.name


def _diagonal(slopes: Any) -> Any:
    slopes = np.asarray(slopes)
    return np.diag(slopes.reshape(-1)).reshape(slopes.shape * 2)


def _some(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0.2, 1.3, size=shape)


def _elementwise(f: Any, x: Any) -> Any:
    h = f.sin(x)
    return h * x


def _layer(f: Any, x: Any, w: Any, b: Any) -> Any:
    h = f.matvec(w, x) + b
    return f.tanh(h)


def _layer_jacobian(x: Any, w: Any, b: Any) -> Any:
    slope = 1 - np.tanh(w @ x + b) ** 2
    return slope[:, None] * w, np.einsum("i,ij,k->ijk", slope, np.eye(len(b)), x), np.diag(slope)


def _loss(f: Any, x: Any) -> Any:
    h = f.tanh(x)
    return f.sum(h * h)


def _loss_slope(x: Any) -> Any:
    return 2 * np.tanh(x) * (1 - np.tanh(x) ** 2)


def _loss_second(x: Any) -> Any:
    t = np.tanh(x)
    return _diagonal(2 * (1 - t**2) * (1 - 3 * t**2))


def _powers(f: Any, s: Any) -> Any:
    return f.stack([s, s * s, f.exp(s)])


def _outer(f: Any, a: Any, b: Any) -> Any:
    return a * b


def _outer_jacobian(a: Any, b: Any) -> Any:
    rows, columns = a.shape[0], b.shape[1]
    by_a = np.einsum("ik,j->ijk", np.eye(rows), b[0])[..., None]
    by_b = np.einsum("i,jl->ijl", a[:, 0], np.eye(columns))[:, :, None, :]
    return by_a, by_b


def _differences(f: Any, x: Any) -> Any:
    return (x[1:] - x[:-1]) * x[1:]


def _differences_jacobian(x: Any) -> Any:
    J = np.zeros((len(x) - 1, len(x)))
    at = np.arange(len(x) - 1)
    J[at, at + 1] = 2 * x[1:] - x[:-1]
    J[at, at] = -x[1:]
    return (J,)


def _softmax(f: Any, x: Any) -> Any:
    h = f.exp(x)
    return h / f.sum(h)


def _softmax_jacobian(x: Any) -> Any:
    p = np.exp(x) / np.exp(x).sum()
    return (np.diag(p) - np.outer(p, p),)


def _softmax_middle(x: Any) -> Any:
    h = np.exp(x)
    return np.eye(len(x)) / h.sum() - h[:, None] / h.sum() ** 2


def _kinked(f: Any, x: Any) -> Any:
    return f.where(x > 0.7, x * x, 3.0 * x)


def _turned(f: Any, x: Any) -> Any:
    return f.reshape(f.transpose(x), (-1,))[::2]


def _turned_jacobian(x: Any) -> Any:
    rows, columns = x.shape
    J = np.zeros((rows * columns, rows, columns))
    for k in range(rows * columns):
        J[k, k % rows, k // rows] = 1
    return (J[::2],)


def _recurrence(f: Any, x: Any) -> Any:
    for _ in range(4):
        x = f.tanh(x) * 1.5
    return x


def _recurrence_slope(x: Any) -> Any:
    slope = np.ones_like(x)
    for _ in range(4):
        slope, x = slope * 1.5 * (1 - np.tanh(x) ** 2), np.tanh(x) * 1.5
    return slope


def _root(f: Any, x: Any) -> Any:
    return f.sqrt(x)


def _cubic(f: Any, x: Any) -> Any:
    return x * x * x


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "elementwise",
        _elementwise,
        (_some(3, 2),),
        lambda x: (_diagonal(np.cos(x) * x + np.sin(x)),),
        middle=_diagonal,
        diagonal=True,
    ),
    Scenario(
        "layer",
        _layer,
        (_some(3), _some(4, 3, seed=1), _some(4, seed=2)),
        _layer_jacobian,
        middle=lambda x, w, b: np.diag(1 - np.tanh(w @ x + b) ** 2),
    ),
    Scenario(
        "loss",
        _loss,
        (_some(2, 3),),
        lambda x: (_loss_slope(x),),
        middle=lambda x: 2 * np.tanh(x),
        second=_loss_second,
    ),
    Scenario("powers of a number", _powers, (np.array(0.7),), lambda s: (np.array([1, 2 * s, np.exp(s)]),)),
    Scenario("broadcast product", _outer, (_some(3, 1), _some(1, 4, seed=1)), _outer_jacobian),
    Scenario("differences", _differences, (_some(6),), _differences_jacobian),
    Scenario("softmax", _softmax, (_some(4),), _softmax_jacobian, middle=_softmax_middle),
    Scenario(
        "kinked",
        _kinked,
        (np.array([0.2, 0.9, 0.5, 1.4]),),
        lambda x: (np.diag(np.where(x > 0.7, 2 * x, 3.0)),),
        diagonal=True,
    ),
    Scenario("turned around", _turned, (_some(3, 2),), _turned_jacobian),
    Scenario("recurrence", _recurrence, (_some(3),), lambda x: (np.diag(_recurrence_slope(x)),), diagonal=True),
    Scenario(
        "cubic",
        _cubic,
        (_some(3),),
        lambda x: (np.diag(3 * x * x),),
        second=lambda x: np.einsum("ij,jk,j->ijk", np.eye(3), np.eye(3), 6 * x),
        diagonal=True,
    ),
    Scenario("empty", _elementwise, (np.zeros((0, 2)),), lambda x: (np.zeros((0, 2, 0, 2)),), ways=("empty",)),
    Scenario(
        "element of the same tensor",
        lambda f, x: f.filled(x, 6, lambda last: f.tanh(last) * 1.5),
        (np.array(0.4),),
        lambda x: (np.zeros(6),),
        ways=("same tensor",),
    ),
    Scenario(
        "independent",
        lambda f, x, z: f.sin(x),
        (_some(3), _some(2)),
        lambda x, z: (np.diag(np.cos(x)), np.zeros((3, 2))),
        ways=("unconnected",),
    ),
    Scenario(
        "holomorphic",
        lambda f, z: z * z + f.exp(z),
        (np.array([0.3 + 0.4j, -0.2 + 0.9j]),),
        lambda z: (np.diag(2 * z + np.exp(z)),),
        extra_passes=8,
        ways=("complex",),
    ),
    Scenario(
        "complex of a real",
        lambda f, x: f.exp(f.to_complex(x) * 1j),
        (_some(3),),
        lambda x: (np.diag(1j * np.exp(1j * x)),),
        extra_passes=12,
        ways=("complex",),
    ),
    Scenario(
        "structural zero beside an infinite slope",
        _root,
        (np.array([0.0, 1.0]),),
        lambda x: (np.array([[np.inf, 0.0], [0.0, 0.5]]),),
        extra_passes=8,
        ways=("infinite slope",),
    ),
)
