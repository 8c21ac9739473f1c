"""A Jacobian as scipy's `LinearOperator`: flattened y by flattened x, NumPy vectors in and out, nothing ever formed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import LinearOperator

from wrt._core.report import Certificate
from wrt._run.linear_map import LinearMap

Numbers = npt.NDArray[Any]


class Operator(LinearOperator):  # type: ignore[misc]
    """`A @ v` is one push, `A.H @ u` one pull, a block of k vectors one batch; `passes` counts them.

    Every product is held to one plain pull that was made at the start.
    """

    def __init__(self, linear_map: LinearMap) -> None:
        arrays = linear_map.arrays
        self.map = linear_map
        self._of_x, self._of_y = linear_map.ask.x.values[0], linear_map.ask.y
        kinds = [arrays.numpy(arrays.zeros((0,), value)).dtype for value in (self._of_x, self._of_y)]
        super().__init__(np.result_type(*kinds), (linear_map.m, linear_map.n))

    @property
    def passes(self) -> int:
        """Sweeps of the engine so far, proofs included."""
        return self.map.report.passes

    @property
    def certificate(self) -> Certificate | None:
        """The proof of the latest product."""
        return self.map.report.certificate

    def _matvec(self, v: Numbers) -> Numbers:
        return self._matmat(v.reshape(-1, 1)).reshape(-1)

    def _rmatvec(self, u: Numbers) -> Numbers:
        return self._rmatmat(u.reshape(-1, 1)).reshape(-1)

    def _matmat(self, vectors: Numbers) -> Numbers:
        arrays = self.map.arrays
        pushed = self.map.push(arrays.native(vectors.T, self._of_x))
        merge_steps(self.map)
        return np.asarray(arrays.numpy(pushed).T)

    def _rmatmat(self, vectors: Numbers) -> Numbers:
        arrays = self.map.arrays
        pulled = self.map.pull(arrays.native(np.conj(vectors.T), self._of_y))  # the adjoint conjugates twice
        merge_steps(self.map)
        return np.asarray(np.conj(arrays.numpy(pulled)).T)

    def __repr__(self) -> str:
        return f"Operator  {self.shape[0]} x {self.shape[1]} {self.dtype}   {self.passes} passes so far"


def merge_steps(linear_map: LinearMap) -> None:
    """One line for each kind of step: an iteration of a thousand products is told in two lines."""
    steps = linear_map.report.steps
    if len(steps) < 8:
        return
    merged: dict[tuple[str, str, str], Any] = {}
    for step in steps:
        known = merged.get((step.what, step.way, step.method))
        if known is None:
            merged[step.what, step.way, step.method] = step
        else:
            known.passes += step.passes
            known.calls += step.calls
            known.seconds += step.seconds
    steps[:] = merged.values()
