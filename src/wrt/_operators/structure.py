"""What the planner finds: a Jacobian that is known after a few passes needs no further ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wrt._core.ask import Ask
from wrt._core.report import Report
from wrt._operators.linear_map import LinearMap
from wrt._operators.operator import Operator
from wrt._run import execute
from wrt._run.compressed import Passes
from wrt._run.factored import Factors
from wrt._run.memory import SMALL, answer_bytes
from wrt._run.planned import Planned, worth_planning


def in_fewer_passes(ask: Ask, report: Report) -> Passes | Factors | None:
    """A compressed or factored Jacobian; None where there is none, or where not all of it is finite."""
    if not worth_planning(ask) or execute.is_identity(ask):
        return None
    record = ask.y.record
    record.ready(ask.y, ask.x)
    for side in execute.meanings(ask.x):
        if all(map(record.has_history, side.values)):
            narrowed = replace(ask, x=side)
            found = Planned(narrowed, record.linear(ask.y, side.values), report).in_fewer_passes()
            if found is not None and found.finite:
                return found
    return None


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
