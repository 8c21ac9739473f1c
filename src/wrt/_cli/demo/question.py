"""What a question of the demo is, and what answering one leaves: numbers of wrt beside numbers found another way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Check:
    """One line asked of wrt, and the same numbers computed without it; true when they agree.

    >>> bool(Check("d(y) / d(x)[2]", np.array(3.0), np.array(3.0), "by hand"))
    True
    """

    asked: str
    got: Numbers
    expected: Numbers
    how: str
    tolerance: float = 1e-9
    passes: int | None = None

    @property
    def difference(self) -> float:
        """The largest difference, relative to the largest number there is; infinite where the shapes differ."""
        if self.got.shape != self.expected.shape:
            return float("inf")
        if not self.got.size:
            return 0.0
        scale = max(1.0, float(np.abs(self.expected).max()))
        return float(np.abs(self.got - self.expected).max()) / scale

    def __bool__(self) -> bool:
        return self.difference <= self.tolerance  # a NaN is not below anything


@dataclass(frozen=True, slots=True)
class Shown:
    """A sentence with a verdict, where the truth is not a table of numbers."""

    words: str
    holds: bool

    def __bool__(self) -> bool:
        return self.holds


Evidence = Check | Shown


@dataclass(frozen=True, slots=True)
class Question:
    """One question people ask; `truth` is a sentence where they are often told something else."""

    number: str
    asks: str
    given: str
    twins: Mapping[str, str]
    """Framework -> name of the function in `<framework>_twins.py` that asks it there."""
    truth: str = ""


@dataclass(frozen=True, slots=True)
class Topic:
    """A group of questions that are asked together."""

    title: str
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one framework answered to one question; false when a check failed or something was raised."""

    number: str
    framework: str
    evidence: tuple[Evidence, ...] = ()
    raised: str = ""
    skipped: str = ""

    def __bool__(self) -> bool:
        return bool(self.skipped) or (not self.raised and bool(self.evidence) and all(self.evidence))


def asked(line: str, answer: Any, expected: Any, how: str, *, tolerance: float = 1e-9) -> Check:
    """Compute a Derivative and put it beside the numbers that were found another way."""
    got = np.asarray(answer, dtype=np.float64)
    passes = answer.explain().passes if hasattr(answer, "explain") else None
    return Check(line, got, np.asarray(expected, dtype=np.float64), how, tolerance, passes)


def slopes(f: Callable[[Numbers], Any], x: Numbers, step: float = 1e-5) -> Numbers:
    """The Jacobian of f at x by central differences: f's shape, then x's. It knows nothing of derivatives.

    >>> slopes(lambda x: (x**2).sum(), np.array([1.0, 2.0])).round(6).tolist()
    [2.0, 4.0]
    """
    columns = []
    for k in range(x.size):
        there, back = x.astype(np.float64), x.astype(np.float64)
        there.reshape(-1)[k] += step
        back.reshape(-1)[k] -= step
        columns.append((np.asarray(f(there)) - np.asarray(f(back))) / (2 * step))
    return np.stack(columns, axis=-1).reshape(*columns[0].shape, *x.shape)
