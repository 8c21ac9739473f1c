"""Random expressions from a seed, and their Jacobians to thirty digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

DIGITS = 30
WRAPPERS: tuple[Callable[[Any], Any], ...] = (
    sympy.sin,
    sympy.cos,
    sympy.tanh,
    sympy.atan,
    sympy.exp,
    lambda u: sympy.exp(-(u**2)),
    lambda u: sympy.log(1 + u**2),
    lambda u: sympy.sqrt(1 + u**2),
    lambda u: 1 / (2 + sympy.sin(u)),
    lambda u: u**3,
)


@dataclass(frozen=True)
class Problem:
    """m expressions of n symbols, and a point."""

    symbols: tuple[Any, ...]
    expressions: tuple[Any, ...]
    point: Any

    def jacobian(self) -> Any:
        """The symbolic derivative at the point, computed with far more digits than are compared."""
        import mpmath

        matrix = sympy.Matrix(self.expressions).jacobian(self.symbols)
        with mpmath.workdps(DIGITS):
            found = sympy.lambdify(self.symbols, matrix, modules="mpmath")(*map(mpmath.mpf, self.point.tolist()))
            return np.array(found.tolist(), dtype=float).reshape(len(self.expressions), len(self.symbols))


def problem(seed: int) -> Problem:
    generator = np.random.default_rng([seed, 4])
    n, m = int(generator.integers(1, 5)), int(generator.integers(1, 4))
    symbols = sympy.symbols(f"x:{n}")
    expressions = tuple(_with_symbols(generator, symbols) for _ in range(m))
    return Problem(symbols, expressions, generator.uniform(0.2, 1.2, size=n))


def _with_symbols(generator: Any, symbols: Any) -> Any:
    """An expression that did not cancel to a number."""
    while True:
        made = _expression(generator, symbols, depth=int(generator.integers(2, 5)))
        if made.free_symbols:
            return made


def _expression(generator: Any, symbols: Any, depth: int) -> Any:
    if depth == 0:
        leaf = symbols[int(generator.integers(len(symbols)))]
        return leaf * sympy.Rational(int(generator.integers(1, 8)), 4)
    kind = generator.integers(5)
    if kind < 2:
        return WRAPPERS[int(generator.integers(len(WRAPPERS)))](_small(_expression(generator, symbols, depth - 1)))
    left, right = (_expression(generator, symbols, depth - 1) for _ in range(2))
    if kind == 2:
        return left + right
    return left - right / 3 if kind == 3 else left * right


def _small(expression: Any) -> Any:
    """Keep what goes into exp and powers near one, so that no digits are lost to size."""
    return expression / 2
