"""One pass for many denominators: the leaves of a tree are pulled together the first time one is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wrt._core.ask import Ask
from wrt._run import shared_pass
from wrt._run.answer import Answer


class SharedPass:
    """The questions that are asked together; `take` gives one of them its share of the common answer."""

    __slots__ = ("_answers", "_asks", "_unreached", "ran")

    def __init__(self, asks: Sequence[Ask]) -> None:
        self._asks = asks
        self._answers: dict[int, Answer] = {}
        self._unreached: set[int] = set()
        self.ran = False

    def take(self, place: int) -> Answer | None:
        """The leaf's own block; None where it has to ask for itself."""
        if not self.ran:
            self._answers, self._unreached = shared_pass.answers(self._asks)
            self.ran = True
            note = _shared_with(len(self._answers) - 1)
            for answer in self._answers.values():
                answer.report = replace(answer.report, notes=[*answer.report.notes, note])
        return self._answers.pop(place, None)  # the leaf keeps it from here on

    def misses(self, place: int) -> bool:
        """Whether the shared pass ran and found no path to this leaf."""
        return place in self._unreached


def _shared_with(others: int) -> str:
    return f"shared with {others} other {'leaf' if others == 1 else 'leaves'} of the tree"
