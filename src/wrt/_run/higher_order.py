"""Higher derivatives: the gradient is pulled so that it can be differentiated again, and asked about like any Value."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wrt._core.ask import Ask
from wrt._core.index import Elements
from wrt._core.protocol import Array, Arrays
from wrt._core.report import Report, Step
from wrt._core.value import Side, Value
from wrt._run import answer as answers
from wrt._run.answer import Answer
from wrt._run.memory import refuse_too_large

PIECE = 2**20  # numbers that are looked at together


def answer(y: Value, rows: Elements, sides: tuple[Side, ...]) -> Answer:
    """d(y)[rows] / d(x) / d(z) ...: (m, n1 * n2 * ...)."""
    found = reached(y, rows, sides) or answers.independent(Ask(y, rows, sides[0]), math.prod(s.size for s in sides))
    arrays = y.record.backend.arrays
    if found.connected and found.report.steps and _all_zero(arrays, found.array):
        for side in sides[1:]:
            _zeros_are_right(Ask(y, rows, side), found.report)
    return found


def _all_zero(arrays: Arrays, array: Array) -> bool:
    """Piece by piece: the first one nearly always tells, and none is as large as the answer."""
    flat = arrays.reshape(array, (-1,))
    count = arrays.shape(flat)[0]
    return all(not arrays.largest(arrays.abs(flat[k : k + PIECE])) for k in range(0, count, PIECE))


def _zeros_are_right(ask: Ask, report: Report) -> None:
    """A second derivative may well be zero, but only with respect to something y depends on."""
    ask.y.record.ready(ask.y, ask.x)
    report.steps.append(Step("does y depend on it at all?", "pull", "one by one", 1, 1))
    if not answers.connected(ask):
        answers.raise_unless_independent(ask)


def reached(y: Value, rows: Elements, sides: tuple[Side, ...]) -> Answer | None:
    """The derivative; None where y does not depend on the first side (of a gradient: a second derivative of zero)."""
    if len(sides) == 1:
        return answers.reached(Ask(y, rows, sides[0]))
    first, rest = sides[0], sides[1:]
    ask = Ask(y, rows, first)
    arrays = y.record.backend.arrays
    columns = math.prod(side.size for side in rest)
    if ask.m == 0 or ask.n == 0 or columns == 0:
        zeros = arrays.zeros((ask.m, ask.n * columns), first.values[0])
        return answers.exact(zeros, "the question is empty", connected=False)
    if answers.is_identity(ask):
        zeros = arrays.zeros((ask.m, ask.n * columns), first.values[0])
        return answers.exact(zeros, "the identity is constant", connected=False)
    y.record.ready(y, first)
    refuse_too_large(Ask(y, rows, Side((ask.n * columns,), first.parts)))
    gradients, used, step = _gradients(ask, rest)
    if gradients is None:
        return None
    return _differentiate(ask, used, gradients, rest, columns, step)


def _gradients(ask: Ask, rest: Sequence[Side]) -> tuple[list[Value | None] | None, Side, Step]:
    """The rows of the first derivative as Values that can be differentiated again."""
    record = ask.y.record
    seeds = record.backend.arrays.one_hot(ask.y, ask.rows.positions)
    step = Step("first derivative, kept differentiable", "pull", "one by one", ask.m, ask.m)
    by = [value for side in rest for meaning in answers.meanings(side) for value in meaning.values]
    for side in answers.meanings(ask.x):
        if all(map(record.has_history, side.values)):
            pulled = record.engine(ask.y, side.values).pull_traceable(seeds, by)
            if any(g is not None for g in pulled):
                return pulled, side, step
    return None, ask.x, step


def _differentiate(
    ask: Ask, used: Side, gradients: list[Value | None], rest: tuple[Side, ...], columns: int, step: Step
) -> Answer:
    arrays = ask.y.record.backend.arrays
    report = Report("direct", "the gradient is differentiated again", steps=[step])
    whole = None if len(used.parts) == 1 and used.parts[0].into is None else _zeros(ask, rest, columns)
    for part, gradient in zip(used.parts, gradients, strict=True):
        if gradient is None or not gradient.record.has_history(gradient):
            continue  # linear in x: nothing left to differentiate
        block = _of_part(ask.m, part.elements, gradient, rest, report)
        if block is not None:
            into = slice(None) if part.into is None else part.into
            block = arrays.reshape(block, (ask.m, part.elements.size, columns))
            whole = block if whole is None else arrays.place(whole, (slice(None), into), block)
    whole = _zeros(ask, rest, columns) if whole is None else whole
    return Answer(arrays.reshape(whole, (ask.m, ask.n * columns)), True, report)


def _zeros(ask: Ask, rest: tuple[Side, ...], columns: int) -> Array:
    return ask.y.record.backend.arrays.zeros((ask.m, ask.n, columns), rest[-1].values[0])


def _of_part(m: int, elements: Elements, gradient: Value, rest: tuple[Side, ...], report: Report) -> Array | None:
    """The next derivative of one part of the first one."""
    rows = Elements.all(gradient.shape).pick((slice(None),))  # (m, *x.shape)
    flat = Elements.at(gradient.shape, rows.positions.reshape(m, -1)[:, elements.positions])
    inner = reached(gradient, flat, rest)
    if inner is None:
        return None
    report.steps.extend(inner.report.steps)
    report.fallbacks.extend(inner.report.fallbacks)
    report.notes.extend(note for note in inner.report.notes if note not in report.notes)
    report.certificate = inner.report.certificate
    return inner.array

