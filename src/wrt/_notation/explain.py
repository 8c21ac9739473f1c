"""`J.explain()`: the plan before it runs, what ran once it has. Text for people, a dict for programs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from wrt._core.ask import Ask
from wrt._core.index import Shape
from wrt._core.report import Report, Step
from wrt._run.answer import first_plan
from wrt._run.memory import call_bytes, words
from wrt._run.options import current

NOTICED = 1e-3  # seconds that are worth a word
LARGE = 2**20  # bytes, likewise


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is asked, how it will be (or was) answered, and what the answer rests on."""

    question: str
    shape: Shape
    bytes: int
    strategy: str
    because: str
    passes: int
    ran: bool
    steps: tuple[Step, ...] = ()
    fallbacks: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    certificate: str = ""
    memory: int = 0
    seconds: float | None = None
    report: Report | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, ask: Ask, shape: Shape, order: int, report: Report | None) -> Explanation:
        question = f"{ask.m} x {ask.n} entries" if order == 1 else f"{_nth(order)} order, {math.prod(shape)} entries"
        size = math.prod(shape) * ask.y.record.backend.arrays.itemsize(ask.x.values[0])
        memory = size + call_bytes(ask)
        if report is None:
            plan, declined = first_plan(ask, current().way)
            name = f"direct, {plan.way}" if plan.strategy == "direct" else plan.strategy
            return cls(
                question, shape, size, name, plan.because, plan.passes, False, declined=tuple(declined), memory=memory,
                seconds=plan.seconds,
            )  # fmt: skip
        return cls(
            question,
            shape,
            size,
            report.strategy,
            report.because,
            report.passes,
            True,
            tuple(report.steps),
            tuple(report.fallbacks),
            tuple(report.declined),
            tuple(dict.fromkeys((*report.notes, *ask.y.record.notes(ask.y, ask.x)))),
            "" if report.certificate is None else str(report.certificate),
            memory,
            sum(step.seconds for step in report.steps),
            report,
        )

    def to_dict(self) -> dict[str, Any]:
        """The same for programs."""
        told = {
            "question": self.question,
            "shape": list(self.shape),
            "bytes": self.bytes,
            "strategy": self.strategy,
            "because": self.because,
            "passes": self.passes,
            "ran": self.ran,
            "memory": self.memory,
            "seconds": self.seconds,
            "declined": list(self.declined),
            "notes": list(self.notes),
        }
        return ({} if self.report is None else self.report.to_dict()) | told

    def __str__(self) -> str:
        lines = [
            f"question     {self.question}, shape {self.shape}, {words(self.bytes)}",
            f"strategy     {self.strategy}, because {self.because}",
        ]
        if not self.ran:
            slow = self.seconds is not None and self.seconds >= NOTICED
            expected = f", about {_time(self.seconds or 0.0)} on one CPU thread" if slow else ""
            lines.append(f"passes       {self.passes} expected{expected}; not computed yet")
            if self.memory >= LARGE:
                lines.append(f"memory       {words(self.memory)}: the answer and one chunk")
            lines += [f"not taken    {words}" for words in self.declined]
            return "\n".join(lines + [f"note         {words}" for words in self.notes])
        lines.append(f"passes       {self.passes}")
        lines += [f"  {step.what}: {step.passes} by {step.way}, {_batched(step)}{_took(step)}" for step in self.steps]
        lines += [f"not taken    {words}" for words in self.declined]
        lines += [f"fell back    {words}" for words in self.fallbacks]
        lines += [f"note         {words}" for words in self.notes]
        lines.append(f"certificate  {self.certificate}")
        return "\n".join(lines)

    __repr__ = __str__


def _nth(order: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(order, f"{order}th")


def _batched(step: Step) -> str:
    calls = {0: "no call of its own", 1: "1 call"}.get(step.calls, f"{step.calls} calls")
    return f"{step.method}, {calls}" if step.method else calls


def _took(step: Step) -> str:
    return f", {_time(step.seconds)}" if step.seconds >= NOTICED / 10 else ""


def _time(seconds: float) -> str:
    """Seconds for people.

    >>> _time(0.0123)
    '12.3 ms'
    """
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.1f} ms"
