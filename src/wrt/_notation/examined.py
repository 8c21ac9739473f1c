"""One pair of a recording, examined: what `wrt.why(y, x)` and `J.why()` have in common."""

from __future__ import annotations

from typing import Any, TypeAlias

from wrt._core.finding import Findings
from wrt._core.index import Elements
from wrt._core.value import Side, Value
from wrt._core.where import Where
from wrt._why.examine import examine
from wrt._why.question import Question, display_name
from wrt.errors import DifferentRuns, NotRecorded

Asked: TypeAlias = tuple[Any, Value, Elements]  # the recording, a value of it, which of its elements
LOOPS = ("scan",)
VAGUE = ("no_derivative", "domain_edge", "invariant_output", "exploding_product", "vanishing_chain")
"""What can be said of a loop as a whole, when the reason is in one of its lines."""


def of_derivative(y: Value, rows: Elements, side: Side) -> Findings:
    """The same for a Derivative: its first denominator, the parts of a buffer one after the other."""
    if not y.record.recorded:
        raise unknown()
    found = [between((y.record, y, rows), (y.record, part.value, part.elements)) for part in side.parts]
    return found[0] if len(found) == 1 else Findings(tuple(f for each in found for f in each), found[0].question)


def between(y: Asked, x: Asked) -> Findings:
    """The examination of one pair within one recording; where it ends at a loop, it goes on inside."""
    record: Any = y[0]
    x = (record, record.own(x[1]), x[2])
    if x[1].record is not y[0]:
        raise DifferentRuns(
            "why() of tensors from two different recordings",
            "the run that y was made in never met x",
            "compute both inside one `with wrt.record():`, or in one wrt.trace(f, x)",
        )
    numbers = record.numbered(y[1]), record.numbered(x[1])
    if numbers[0] is None or numbers[1] is None:
        raise NotRecorded(
            "why() of elements as they were between two writes",
            "the graph of the run has no number for them: they were written through a view, or not at all",
            "ask about the whole tensor, wrt.why(y, x), or about what was written there",
        )
    evidence = record.evidence()
    found = _examined(evidence, numbers, y, x)
    if _blames_a_loop(evidence, found):
        with record.open_loops(y[1], x[1]) as inside:
            if inside is not None:
                return _examined(inside[0], inside[1:], y, x) or found
    return found


def _examined(evidence: Any, numbers: tuple[int, int], y: Asked, x: Asked) -> Findings:
    graph = evidence.graph
    names = (display_name(graph, numbers[0], y[1].name or "y"), display_name(graph, numbers[1], x[1].name or "x"))
    rows = None if y[2].everything else y[2].positions.reshape(-1)
    columns = None if x[2].everything else x[2].positions.reshape(-1)
    made = _made(y[0], y[1]), _made(y[0], x[1])
    return examine(Question(evidence, numbers[0], numbers[1], names, rows, columns, made))


def _blames_a_loop(evidence: Any, found: Findings) -> bool:
    loops = {node.where for node in evidence.graph.nodes if node.op in LOOPS}
    return any(finding.where in loops and finding.cause in VAGUE for finding in found)


def _made(record: Any, value: Value) -> Where | None:
    """The line that made a value, or the one that first gave it a name."""
    made: Where | None = record.where(value)
    if made is not None:
        return made
    bound = record.names.of(value) or record.names.of(value.key)  # whichever a backend files under a name
    return bound[0].where if bound else None


def unknown() -> NotRecorded:
    return NotRecorded(
        "why() of a tensor that no recording has seen",
        "a diagnosis needs the run: its lines, its writes, what was cut where",
        "run the code inside `with wrt.record():`, or ask wrt.why(f, x)",
    )
