"""One row of an ordinary tensor: one plain pass of the engine, and nothing beside it that takes time.

What a hand-written `autograd.grad(y[i], x)` costs is the measure here, so this file looks at each thing once.
Whatever is not ordinary (complex numbers, elements scattered over several writes, a view that may mean its base, no
path at all) is left to `execute.py`.
"""

from __future__ import annotations

from wrt._core.ask import Ask
from wrt._core.protocol import Array
from wrt._core.report import Certificate, Report, Step
from wrt._run import repair
from wrt._run.direct import set_up
from wrt._run.memory import SMALL, refuse_too_large
from wrt._run.options import current

ENGINE = Certificate("engine")


def plain_row(ask: Ask) -> tuple[Array, Report] | None:
    """The row in x's own shape, or its elements as (1, n), and what ran; None where more has to be looked at."""
    y, parts = ask.y, ask.x.parts
    part = parts[0]
    x = part.value
    record = y.record
    arrays = record.backend.arrays
    if len(parts) > 1 or part.into is not None or part.component or arrays.is_complex(y) or arrays.is_complex(x):
        return None
    chosen = current()
    if chosen.way is not None or not record.has_history(y) or not record.has_history(x) or record.same(y, x):
        return None
    if chosen.memory is not None or x.size * arrays.itemsize(x) > SMALL:
        refuse_too_large(ask)
    linear = record.linear(y, (x,))
    rung = linear.pull_rungs[-1]
    row = getattr(linear, "row", None)
    if row is None:
        (array,) = linear.pull(arrays.one_hot(y, ask.rows.positions), rung)
    else:
        array = row(ask.rows.first)
    if array is None or not ask.n:
        return None
    if not part.elements.everything:
        array = arrays.take(arrays.reshape(array, (1, x.size)), part.elements.positions, 1)
    report = Report("direct", "one row is one pass", [Step("rows", "pull", rung, 1, 1)], [], list(ask.x.notes), ENGINE)
    if not arrays.all_finite(array):
        array = repair.non_finite(ask, linear, arrays.reshape(array, (1, ask.n)), "pull", report)
        report.steps.extend(set_up(linear))
    return array, report
