"""Trace and diagonal of a square Jacobian from a few pulls of random signs, with the error that is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
Pull = Callable[[Numbers], Numbers]
"""(k, m) -> (k, n): u J for each u."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """`value` give or take `error`, one standard error of the mean; 0 where the value is exact.

    About two in three estimates lie within one `error` of the truth, nineteen in twenty within two.
    """

    value: Any
    error: Any
    passes: int
    method: str

    def __float__(self) -> float:
        return float(self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Numbers:
        return np.asarray(self.value, dtype=dtype)

    def __repr__(self) -> str:
        told = f"({self.passes} passes, {self.method})"
        if np.ndim(self.value):
            return f"Estimate  of shape {np.shape(self.value)} ± {np.max(self.error):.2g} at most {told}"
        return f"Estimate  {self.value:.6g} ± {self.error:.2g} {told}"


def trace(pull: Pull, n: int, passes: int, *, seed: int = 47) -> Estimate:
    """Hutch++: a third of the passes finds where J is large, a third sums that part exactly, the rest is sampled."""
    generator = np.random.default_rng(seed)
    third = min(passes // 3, n)
    if third == 0:
        return _hutchinson_trace(pull, n, max(passes, 2), generator)
    sketch = pull(_signs(generator, third, n))  # rows span what Jᵀ makes large
    basis = np.linalg.qr(sketch.T)[0].T  # (r, n), orthonormal rows
    exact = np.sum(pull(basis) * basis.conj())
    count = max(2, passes - 2 * third)
    probes = _signs(generator, count, n)
    probes = probes - (probes @ basis.conj().T) @ basis
    sampled = np.sum(pull(probes) * probes.conj(), axis=1)
    spent = third + len(basis) + count
    return Estimate(_number(exact + sampled.mean()), _error(sampled), spent, "Hutch++")


def _hutchinson_trace(pull: Pull, n: int, count: int, generator: np.random.Generator) -> Estimate:
    probes = _signs(generator, count, n)
    sampled = np.sum(pull(probes) * probes, axis=1)
    return Estimate(_number(sampled.mean()), _error(sampled), count, "Hutchinson")


def diagonal(pull: Pull, n: int, passes: int, *, seed: int = 47, most: int = 64) -> Estimate:
    """The mean of g * (g J) over random signs g: what is off the diagonal cancels, and its size is the error."""
    generator = np.random.default_rng(seed)
    passes = max(passes, 2)
    mean = spread = np.zeros(n)
    done = 0
    while done < passes:
        count = min(most, passes - done)
        probes = _signs(generator, count, n)
        for sample in pull(probes) * probes:  # Welford: no batch has to stay
            done += 1
            away = sample - mean
            mean = mean + away / done
            spread = spread + np.abs(away * np.conj(sample - mean))
    return Estimate(mean, np.sqrt(spread / (passes - 1) / passes), passes, "Hutchinson")


def _signs(generator: np.random.Generator, count: int, n: int) -> Numbers:
    return generator.choice([-1.0, 1.0], size=(count, n))


def _error(samples: Numbers) -> float:
    return float(np.std(samples, ddof=1) / np.sqrt(len(samples)))


def _number(value: Any) -> Any:
    return value.item()
