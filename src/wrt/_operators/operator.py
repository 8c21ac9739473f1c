"""A Jacobian as scipy's `LinearOperator`: flattened y by flattened x, NumPy vectors in and out, nothing ever formed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import LinearOperator

from wrt._core.ask import Ask
from wrt._core.report import Certificate, Report
from wrt._plan.plans import worth_planning
from wrt._run.answer import answer, is_identity
from wrt._run.compact import better_form
from wrt._run.forms import Factored
from wrt._run.linear_map import LinearMap
from wrt._run.memory import is_small

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


def operand(ask: Ask, report: Report, *, short: int) -> Any:
    """What is multiplied with, all of it known after few passes where that is possible, else an `Operator`.

    A sparse matrix, two factors, or the dense Jacobian where one of its sides has at most `short` lines.
    """
    numpy = ask.y.record.backend.arrays.numpy
    found = better_form(ask, report) if worth_planning(ask) and not is_identity(ask) else None
    if isinstance(found, Factored):
        from scipy.sparse.linalg import aslinearoperator

        return aslinearoperator(numpy(found.last)) @ aslinearoperator(numpy(found.first))
    if found is not None:
        return found.csr()
    if min(ask.m, ask.n) <= short and is_small(ask):
        return all_of_it(ask, report)
    return Operator(LinearMap(ask, report))


def all_of_it(ask: Ask, report: Report) -> Any:
    """The dense Jacobian, (m, n) in NumPy."""
    whole = answer(ask)
    report.take(whole.report)
    return ask.y.record.backend.arrays.numpy(whole.array).reshape(ask.m, ask.n)
