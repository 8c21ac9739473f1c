"""What the planner finds: a Jacobian that is known after a few passes needs no further ones."""

from __future__ import annotations

from typing import Any

from wrt._core.ask import Ask
from wrt._core.report import Report
from wrt._operators.linear_map import LinearMap
from wrt._operators.operator import Operator
from wrt._run import execute
from wrt._run.compressed import Passes
from wrt._run.factored import Factors
from wrt._run.memory import SMALL, answer_bytes
from wrt._run.products import in_fewer_passes


def operand(ask: Ask, report: Report, *, short: int) -> Any:
    """What is multiplied with, all of it known after few passes where that is possible, else an `Operator`.

    A sparse matrix, two factors, or the dense Jacobian where one of its sides has at most `short` lines.
    """
    numpy = ask.y.record.backend.arrays.numpy
    found = in_fewer_passes(ask, report)
    if isinstance(found, Passes):
        return found.sparse()
    if isinstance(found, Factors):
        from scipy.sparse.linalg import aslinearoperator

        return aslinearoperator(numpy(found.last)) @ aslinearoperator(numpy(found.first))
    if min(ask.m, ask.n) <= short and answer_bytes(ask) < SMALL:
        return all_of_it(ask, report)
    return Operator(LinearMap(ask, report))


def all_of_it(ask: Ask, report: Report) -> Any:
    """The dense Jacobian, (m, n) in NumPy."""
    whole = execute.answer(ask)
    report.take(whole.report)
    return ask.y.record.backend.arrays.numpy(whole.array).reshape(ask.m, ask.n)
