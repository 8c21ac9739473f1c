"""The demo on a terminal: each question with what was asked, what came out and what it was checked against."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from wrt._cli.demo.question import Check, Evidence, Numbers, Outcome, Question, Shown, Topic

NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}


def show(console: Console, topics: Iterable[Topic], outcomes: Sequence[Outcome]) -> None:
    """Print every topic whose questions were asked."""
    for number, topic in enumerate(topics, 1):
        asked = [question for question in topic.questions if any(one.number == question.number for one in outcomes)]
        if not asked:
            continue
        console.print(Rule(f"{number}  {topic.title}", align="left", style="dim"))
        for question in asked:
            told = [one for one in outcomes if one.number == question.number]
            console.print(Padding(question_page(question, told), (0, 0, 1, 0)))


def question_page(question: Question, outcomes: Sequence[Outcome]) -> RenderableType:
    parts: list[RenderableType] = [
        Text.assemble((f"{question.number}  ", "bold cyan"), (question.asks, "bold")),
        Padding(Text(question.given, style="italic"), (0, 0, 0, 5)),
    ]
    parts += [Padding(_outcome(one, named=len(outcomes) > 1), (0, 0, 0, 5)) for one in outcomes]
    if question.truth:
        truth = Text.assemble(("Truth:  ", "bold yellow"), (question.truth, "yellow"))
        parts.append(Padding(truth, (0, 0, 0, 5)))
    return Group(*parts)


def _outcome(outcome: Outcome, *, named: bool) -> RenderableType:
    rows: list[RenderableType] = []
    name = NAMES.get(outcome.framework, outcome.framework)
    if outcome.skipped:
        return Text(f"– {name}: {outcome.skipped}", style="dim")
    if named:
        rows.append(Text(name, style="dim"))
    seen: list[Numbers] = []
    for one in outcome.evidence:
        rows.append(_line(one))
        if isinstance(one, Check) and drawn(one.got) and not any(np.array_equal(one.got, other) for other in seen):
            rows.append(Padding(Text(block(one.got)), (0, 0, 0, 4)))
            seen.append(one.got)
    if outcome.raised:
        rows.append(Text.assemble(("✗ ", "bold red"), (outcome.raised, "red")))
    return Group(*rows)


def _line(one: Evidence) -> Text:
    mark = ("✓ ", "bold green") if one else ("✗ ", "bold red")
    if isinstance(one, Shown):
        return Text.assemble(mark, one.words.replace("\n", "\n    "))
    line = Text.assemble(mark, (one.asked, "bold"), f"  =  {short(one.got)}  ")
    line.append(_checked(one), style="dim" if one else "bold red")
    return line


def _checked(check: Check) -> str:
    cost = "" if check.passes is None else f"{check.passes} pass{'' if check.passes == 1 else 'es'}; "
    if check:
        return f"({cost}{check.how}: {'the same' if check.difference == 0 else f'within {check.difference:.0e}'})"
    return f"({cost}{check.how}: {short(check.expected)}, DIFFERENT by {check.difference:.1e})"


def drawn(array: Numbers) -> bool:
    """A matrix that is worth its lines on the screen."""
    return array.ndim == 2 and array.shape[0] > 1 and max(array.shape) <= 8


def block(array: Numbers) -> str:
    """A matrix, row by row.

    >>> print(block(np.array([[1.0, 0.25], [0.0, -2.0]])))
     1   0.25
     0  -2
    """
    cells = [[f"{one + 0.0: .4g}" for one in row] for row in array]  # -0 is shown as 0
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(row.rstrip() for row in rows)


def short(array: Numbers) -> str:
    """An answer in one line: all of a short one, the shape and the extremes of a long one.

    >>> short(np.array([2.0, 0.0])), short(np.zeros((3, 4, 5)))
    ('[2, 0]', '(3, 4, 5) numbers from 0 to 0')
    """
    if drawn(array):
        return f"{array.shape[0]} × {array.shape[1]}"
    if array.size <= 6:
        text = np.array2string(array, separator=", ", formatter={"float_kind": lambda one: f"{one:.6g}"})
        return text.replace("\n", "")
    return f"{array.shape} numbers from {array.min():.4g} to {array.max():.4g}"


def verdict(outcomes: Sequence[Outcome], seconds: float) -> Text:
    """The last line: how many held, failed, were skipped."""
    skipped = sum(bool(one.skipped) for one in outcomes)
    failed = [f"{one.number} ({NAMES.get(one.framework, one.framework)})" for one in outcomes if not one]
    checks = sum(len(one.evidence) for one in outcomes)
    words = f"{len(outcomes) - skipped - len(failed)} answers held against {checks} checks in {seconds:.1f} s"
    words += f", {skipped} skipped" if skipped else ""
    if failed:
        return Text(f"{words}; FAILED: {', '.join(failed)}", style="bold red")
    return Text(words, style="bold green")
