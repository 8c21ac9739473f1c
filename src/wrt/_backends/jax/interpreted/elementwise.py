"""Operations that act on each number alone."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

Array = Any


def _select(which: Array, *cases: Array) -> Array:
    if len(cases) == 2:
        return np.where(which, cases[1], cases[0])
    return np.choose(which, cases)


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind in "fc":
        return np.divide(a, b)
    whole = np.floor_divide(a, b)  # JAX rounds towards zero
    return whole + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0)))


def _round(a: Array, rounding_method: Any) -> Array:
    if int(rounding_method) == 1:
        return np.rint(a)
    return np.trunc(a + np.copysign(np.nextafter(np.asarray(0.5, a.dtype), np.asarray(0, a.dtype)), a))


def _clamp(low: Array, a: Array, high: Array) -> Array:
    return np.minimum(np.maximum(a, low), high)


def _reciprocal_root(a: Array) -> Array:
    return 1 / np.sqrt(a)


def _special(name: str) -> Callable[[Array], Array]:
    """A function of scipy's, which takes longer to load than most programs take to run."""
    return lambda a: getattr(import_module("scipy.special"), name)(a)


def _as_it_is(function: Callable[..., Array]) -> Callable[..., Array]:
    """Without JAX's parameters: NumPy's accuracy is the full one, and the type of what is made is seen to elsewhere."""
    return lambda *given, **_: function(*given)


PLAIN: dict[str, Callable[..., Array]] = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "add": np.add, "add_any": np.add, "and": np.bitwise_and,
    "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan, "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt,
    "ceil": np.ceil, "clamp": _clamp, "complex": lambda a, b: a + 1j * b, "conj": np.conj, "cos": np.cos, "cosh": np.cosh,
    "digamma": _special("digamma"), "div": _divide, "eq": np.equal, "erf": _special("erf"), "erf_inv": _special("erfinv"),
    "erfc": _special("erfc"), "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "floor": np.floor, "ge": np.greater_equal,
    "gt": np.greater, "imag": np.imag, "is_finite": np.isfinite, "le": np.less_equal, "lgamma": _special("gammaln"),
    "log": np.log, "log1p": np.log1p, "logistic": _special("expit"), "lt": np.less, "max": np.maximum, "min": np.minimum,
    "mul": np.multiply, "ne": np.not_equal, "neg": np.negative, "not": np.invert, "or": np.bitwise_or, "pow": np.power,
    "real": np.real, "rem": np.fmod, "rsqrt": _reciprocal_root, "select_n": _select, "sign": np.sign, "sin": np.sin,
    "sinh": np.sinh, "sqrt": np.sqrt, "square": np.square, "sub": np.subtract, "tan": np.tan, "tanh": np.tanh,
    "xor": np.bitwise_xor,
}  # fmt: skip
RULES: dict[str, Callable[..., Array]] = {
    **{name: _as_it_is(function) for name, function in PLAIN.items()},
    "integer_pow": lambda a, y: np.power(a, y) if y >= 0 else 1 / np.power(a, -y),
    "round": _round,
}
"""By the name of the primitive; what an operation gives is cast to the type JAX says it has."""

REAL_ONLY = frozenset({"logistic", "max", "min", "scatter-max", "scatter-min", "sign"})
"""Where NumPy and JAX mean different things by complex numbers."""
