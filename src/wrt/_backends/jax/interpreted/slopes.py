"""How fast an operation that acts on each number alone moves with each of its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

Array = Any
Slopes: TypeAlias = tuple[Array, ...]
Rule: TypeAlias = Callable[..., Slopes]
"""(what it gave, its inputs..., its parameters) -> for each input the slope, broadcastable to what it gave."""


def _selected(out: Array, which: Array, *cases: Array) -> Slopes:
    return (0.0, *(which == k for k in range(len(cases))))


def _larger(out: Array, a: Array, b: Array) -> Slopes:
    """Each half where both are equal, as JAX has it."""
    tie = (a == b) / 2
    return (a == out) - tie, (b == out) - tie


RULES: dict[str, Rule] = {
    "abs": lambda out, a: (np.sign(a),),
    "acos": lambda out, a: (-1 / np.sqrt(1 - a * a),),
    "acosh": lambda out, a: (1 / np.sqrt((a - 1) * (a + 1)),),
    "add": lambda out, a, b: (1.0, 1.0),
    "add_any": lambda out, a, b: (1.0, 1.0),
    "asin": lambda out, a: (1 / np.sqrt(1 - a * a),),
    "asinh": lambda out, a: (1 / np.sqrt(a * a + 1),),
    "atan": lambda out, a: (1 / (1 + a * a),),
    "atan2": lambda out, a, b: (b / (a * a + b * b), -a / (a * a + b * b)),
    "atanh": lambda out, a: (1 / ((1 + a) * (1 - a)),),
    "cbrt": lambda out, a: (out / (3 * a),),
    "cos": lambda out, a: (-np.sin(a),),
    "cosh": lambda out, a: (np.sinh(a),),
    "div": lambda out, a, b: (1 / b, -out / b),
    "erf": lambda out, a: (2 / math.sqrt(math.pi) * np.exp(-a * a),),
    "exp": lambda out, a: (out,),
    "exp2": lambda out, a: (out * math.log(2),),
    "expm1": lambda out, a: (out + 1,),
    "integer_pow": lambda out, a, y: (y * np.power(a, y - 1) if y > 0 else y * out / a,),
    "log": lambda out, a: (1 / a,),
    "log1p": lambda out, a: (1 / (1 + a),),
    "logistic": lambda out, a: (out * (1 - out),),
    "max": _larger,
    "min": _larger,
    "mul": lambda out, a, b: (b, a),
    "neg": lambda out, a: (-1.0,),
    "rsqrt": lambda out, a: (-out / (2 * a),),
    "select_n": _selected,
    "sin": lambda out, a: (np.cos(a),),
    "sinh": lambda out, a: (np.cosh(a),),
    "sqrt": lambda out, a: (1 / (2 * out),),
    "square": lambda out, a: (2 * a,),
    "sub": lambda out, a, b: (1.0, -1.0),
    "tan": lambda out, a: (1 + out * out,),
    "tanh": lambda out, a: (1 - out * out,),
}

PARAMETERS = {"integer_pow": ("y",)}
"""Of which a slope needs to know."""


def slopes(name: str, out: Array, given: Sequence[Array], params: dict[str, Any]) -> Slopes:
    return RULES[name](out, *given, **{key: params[key] for key in PARAMETERS.get(name, ())})
