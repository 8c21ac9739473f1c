"""What the planner finds: a Jacobian that is known after a few passes needs no further ones."""

from __future__ import annotations

from typing import Any

from wrt._core.ask import Ask
from wrt._core.report import Report
from wrt._operators.operator import Operator
from wrt._plan.plans import worth_planning
from wrt._run.answer import answer, is_identity
from wrt._run.compact import better_form
from wrt._run.forms import Factored
from wrt._run.linear_map import LinearMap
from wrt._run.memory import is_small


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
