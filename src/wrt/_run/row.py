"""One row of an ordinary tensor: one plain pass of the engine, and nothing beside it that takes time.

What a hand-written `autograd.grad(y[i], x)` costs is the measure here, so this file looks at each thing once.
Whatever is not ordinary (complex numbers, elements scattered over several writes, a view that may mean its base, no
path at all) is left to `execute.py`.
"""

from __future__ import annotations

import math

from wrt._core.ask import Ask
from wrt._core.index import Elements
from wrt._core.protocol import Array
from wrt._core.report import Certificate, Report, Step
from wrt._core.value import Side, Value
from wrt._run import repair
from wrt._run.direct import set_up
from wrt._run.memory import SMALL, refuse_too_large
from wrt._run.options import DEFAULT, current

ENGINE = Certificate("engine")
FEW = SMALL // 16  # no number takes more bytes


def plain_row(y: Value, rows: Elements, side: Side) -> tuple[Array, Report | None] | None:
    """The row in x's own shape, or its elements as (1, n), and what ran; None where more has to be looked at.

    The report is None where it is `row_report`: most are never read.
    """
    part = side.parts[0]
    x = part.value
    if part.into is not None or part.component or len(side.parts) > 1 or x.record.backend is not y.record.backend:
        return None
    chosen = current()
    if chosen is not DEFAULT and chosen.way is not None:
        return None
    if chosen.memory is not None or math.prod(x.shape) > FEW:
        refuse_too_large(Ask(y, rows, side))
    quick = getattr(y.record, "row", None)
    array, report = (quick(y, x, rows.first), None) if quick is not None else _pulled(y, x, rows, side)
    elements = part.elements
    if array is None or 0 in elements.shape:
        return None
    arrays = y.record.backend.arrays
    if elements.shape is not elements.of and not elements.everything:
        array = arrays.take(arrays.reshape(array, (1, x.size)), elements.positions, 1)
    told = getattr(y.record, "finite_row", None)
    if (told is not None and told(array)) or arrays.all_finite(array):
        return array, report
    ask, report = Ask(y, rows, side), report or row_report(side)
    linear = y.record.linear(y, (x,))
    array = repair.non_finite(ask, linear, arrays.reshape(array, (1, ask.n)), "pull", report)
    report.steps.extend(set_up(linear))
    return array, report


def _pulled(y: Value, x: Value, rows: Elements, side: Side) -> tuple[Array | None, Report | None]:
    """What one pass gives for all of x, where the record knows no quicker way."""
    record = y.record
    arrays = record.backend.arrays
    if arrays.is_complex(y) or arrays.is_complex(x) or record.same(y, x):
        return None, None
    if not record.has_history(y) or not record.has_history(x):
        return None, None
    linear = record.linear(y, (x,))
    (array,) = linear.pull(arrays.one_hot(y, rows.positions), linear.pull_rungs[-1])
    return array, row_report(side, linear.pull_rungs[-1])


def row_report(side: Side, rung: str = "one by one") -> Report:
    """What ran for a plain row."""
    return Report("direct", "one row is one pass", [Step("rows", "pull", rung, 1, 1)], [], list(side.notes), ENGINE)
