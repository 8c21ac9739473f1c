"""One row of an ordinary tensor: one plain pass of the engine, and nothing beside it that takes time.

What a hand-written `autograd.grad(y[i], x)` costs is the measure here, so this file looks at each thing once.
Whatever is not ordinary (complex numbers, elements scattered over several writes, a view that may mean its base, no
path at all) is left to `execute.py`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from wrt._core.ask import Ask
from wrt._core.index import Elements
from wrt._core.protocol import Array
from wrt._core.report import Certificate, Report, Step
from wrt._core.value import Side, Value
from wrt._run import repair
from wrt._run.again import ProvenRow, remember
from wrt._run.answer import Answer
from wrt._run.direct import set_up
from wrt._run.memory import SMALL, refuse_too_large
from wrt._run.options import DEFAULT, current

ENGINE = Certificate("engine")
ONE_BY_ONE = "one by one"
FEW = SMALL // 16  # no number takes more bytes


def plain_row(y: Value, rows: Elements, side: Side) -> Answer | None:
    """One row of y, proven by being one plain pass; None where more has to be looked at."""
    part = side.parts[0]
    x, elements = part.value, part.elements
    if part.into is not None or part.component or len(side.parts) > 1 or x.record.backend is not y.record.backend:
        return None
    chosen = current()
    if chosen is not DEFAULT and chosen.way is not None:
        return None
    if chosen.memory is not None or math.prod(x.shape) > FEW:
        refuse_too_large(Ask(y, rows, side))
    single = elements.shape == () and x.shape != () and hasattr(y.record, "element")
    array, rung = _swept(y, x, rows, elements.first if single else None)
    if array is None or 0 in elements.shape:
        return None
    arrays = y.record.backend.arrays
    ready = single or elements.shape is elements.of or elements.everything
    if not ready:
        array = arrays.take(arrays.reshape(array, (1, x.size)), elements.positions, 1)
    told = partial(row_report, side, rung)
    if not arrays.all_finite(array):
        return _repaired(Ask(y, rows, side), array, told())
    if rows.shape != ():
        return Answer(arrays.reshape(array, (1, side.size)), True, told)
    bind = getattr(y.record, "row_again", None)
    if bind is not None and (run := bind(y, x, rows.first, elements)) is not None:
        remember(y, rows, side, ProvenRow(run, told))
    if single or (ready and elements.shape == x.shape):  # as it is, it has the shape of the question
        return Answer(partial(arrays.reshape, array, (1, side.size)), True, told, array)
    return Answer(arrays.reshape(array, (1, side.size)), True, told)


def _repaired(ask: Ask, array: Array, report: Report) -> Answer:
    """A row in which something is not finite."""
    linear = ask.y.record.linear(ask.y, ask.x.values)
    flat = ask.y.record.backend.arrays.reshape(array, (1, ask.n))
    array = repair.non_finite(ask, linear, flat, "pull", report)
    report.steps.extend(set_up(linear))
    return Answer(array, True, report)


def _swept(y: Value, x: Value, rows: Elements, there: int | None) -> tuple[Array | None, str]:
    """What one pass gives for all of x, or for its element `there`, and on which rung."""
    record: Any = y.record
    if there is not None:
        return record.element(y, x, rows.first, there), ONE_BY_ONE
    quick = getattr(record, "row", None)
    if quick is not None:
        return quick(y, x, rows.first), ONE_BY_ONE
    arrays = record.backend.arrays
    if arrays.is_complex(y) or arrays.is_complex(x) or record.same(y, x):
        return None, ""
    if not record.has_history(y) or not record.has_history(x):
        return None, ""
    linear = record.linear(y, (x,))
    (array,) = linear.pull(arrays.one_hot(y, rows.positions), linear.pull_rungs[-1])
    return None if array is None else arrays.reshape(array, x.shape), linear.pull_rungs[-1]


def row_report(side: Side, rung: str) -> Report:
    """What ran for a plain row."""
    return Report("direct", "one row is one pass", [Step("rows", "pull", rung, 1, 1)], [], list(side.notes), ENGINE)
