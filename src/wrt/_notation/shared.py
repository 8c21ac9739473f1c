"""One pass for many denominators: the leaves of a tree are pulled together the first time one is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from wrt._core.ask import Ask
from wrt._core.report import Report
from wrt._core.value import Part, Side
from wrt._run.execute import Answer, answer
from wrt._run.memory import answer_bytes
from wrt.errors import TooLarge, WrtError

if TYPE_CHECKING:
    from wrt._notation.derivative import Derivative

FITS = 2**30  # larger trees are answered leaf by leaf


class SharedPass:
    """The leaves that are asked for together; `take` gives one leaf its share of the common answer."""

    def __init__(self, leaves: list[Derivative]) -> None:
        self._leaves = leaves
        self._answers: dict[int, Answer] | None = None

    def take(self, leaf: Derivative) -> Answer | None:
        """The leaf's block of the shared answer; None where it has to ask for itself."""
        if self._answers is None:
            self._answers = self._together()
        return self._answers.get(id(leaf))

    def _together(self) -> dict[int, Answer]:
        joint = [leaf for leaf in self._leaves if _joinable(leaf)]
        if len(joint) < 2:
            return {}
        first = joint[0].ask
        if any(leaf.ask.y.dtype != leaf.ask.x.values[0].dtype for leaf in joint):
            return {}
        if sum(answer_bytes(leaf.ask) for leaf in joint) > FITS:
            return {}
        parts: list[Part] = []
        start = 0
        for leaf in joint:
            side = leaf.ask.x
            parts.append(replace(side.parts[0], into=np.arange(start, start + side.size)))
            start += side.size
        together = Side((start,), tuple(parts))
        try:
            whole = answer(Ask(first.y, first.rows, together))
        except (WrtError, TooLarge):
            return {}
        arrays = first.y.record.backend.arrays
        shares: dict[int, Answer] = {}
        for leaf, part in zip(joint, parts, strict=True):
            assert part.into is not None
            report = Report(**{name: getattr(whole.report, name) for name in Report.__dataclass_fields__})
            report.notes = [*whole.report.notes, f"shared with {len(joint) - 1} other leaves of the tree"]
            shares[id(leaf)] = Answer(arrays.take(whole.array, part.into, 1), True, report)
        return shares


def _joinable(leaf: Derivative) -> bool:
    """Ordinary, connected leaves travel together; the others answer, or refuse, for themselves."""
    side = leaf.ask.x
    ordinary = len(side.parts) == 1 and not side.parts[0].component and side.otherwise is None
    return ordinary and leaf.ask.y.record.has_history(side.values[0]) and leaf.connected
