"""The step s with J s = b, as nearly as it can be: least squares without J (lsmr), for Newton and Gauss-Newton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wrt._operators.vectors import refuse_not_finite

WORDS = {
    0: "s = 0 solves it",
    1: "J s = b to the tolerance",
    2: "the least-squares solution to the tolerance",
    3: "J is nearly singular: stopped where its condition is beyond the precision",
    4: "J s = b as far as the precision goes",
    5: "the least-squares solution as far as the precision goes",
    6: "J is singular to the precision",
    7: "NOT converged: the iterations are used up",
}


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """`value` in x's shape; true when it solves J s = b or is its least-squares solution.

    `residual` is ‖J s - b‖, `slope` is ‖Jᵀ(J s - b)‖ (with damping, that of the damped problem).
    """

    value: Any
    residual: float
    slope: float
    iterations: int
    passes: int
    words: str

    def __bool__(self) -> bool:
        return not self.words.startswith("NOT")

    def __repr__(self) -> str:
        return f"Solved  residual {self.residual:.3g} after {self.iterations} iterations, {self.passes} passes: {self.words}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """How good a step has to be: `damping` weighs ‖s‖, `tolerance` is relative, `most` bounds the iterations."""

    damping: float
    tolerance: float
    most: int


def least_squares(matrix: Any, b: Any, wanted: Wanted) -> tuple[Any, float, float, int, str]:
    """min ‖A s - b‖² + damping² ‖s‖²: by lsmr, two products an iteration, or at once where A is at hand."""
    from scipy.sparse.linalg import lsmr

    right = np.asarray(b, dtype=np.result_type(matrix.dtype, np.float64)).reshape(-1)
    if isinstance(matrix, np.ndarray):
        return _at_once(matrix.astype(right.dtype), right, wanted.damping)
    found = lsmr(matrix, right, damp=wanted.damping, atol=wanted.tolerance, btol=wanted.tolerance,
                 conlim=0.0, maxiter=wanted.most)  # fmt: skip
    step, reason, iterations, _, slope = found[:5]
    refuse_not_finite(step, "a solution")
    residual = float(np.linalg.norm(matrix @ step - right)) if wanted.damping else float(found[3])
    return step, residual, float(slope), int(iterations), WORDS[int(reason)]


def _at_once(matrix: Any, right: Any, damping: float) -> tuple[Any, float, float, int, str]:
    refuse_not_finite(matrix, "a solution")
    damped = np.vstack([matrix, damping * np.eye(matrix.shape[1])]) if damping else matrix
    step = np.linalg.lstsq(damped, np.concatenate([right, np.zeros(len(damped) - len(right))]))[0]
    away = matrix @ step - right
    slope = matrix.conj().T @ away + damping**2 * step
    words = "the dense Jacobian was at hand: solved at once"
    return step, float(np.linalg.norm(away)), float(np.linalg.norm(slope)), 0, words
