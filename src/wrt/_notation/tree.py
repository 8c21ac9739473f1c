"""Trees: `d(loss) / d(model)` gives one Derivative for each parameter, from one shared pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from wrt._core.ask import Ask
from wrt._run import shared_pass
from wrt._run.answer import Answer
from wrt.errors import NotATensor


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
            others = len(self._answers) - 1
            note = f"shared with {others} other {'leaf' if others == 1 else 'leaves'} of the tree"
            for answer in self._answers.values():
                answer.report = replace(answer.report, notes=[*answer.report.notes, note])
        return self._answers.pop(place, None)  # the leaf keeps it from here on

    def misses(self, place: int) -> bool:
        """Whether the shared pass ran and found no path to this leaf."""
        return place in self._unreached


class Tree:
    """Sides of a derivative in the user's own structure."""

    __slots__ = ("leaves", "rebuild")

    def __init__(self, leaves: list[Any], rebuild: Callable[[list[Any]], Any]) -> None:
        self.leaves = leaves
        self.rebuild = rebuild

    def __getitem__(self, key: Any) -> Any:
        return self.rebuild(self.leaves)[key]

    def __truediv__(self, x: Any) -> Any:
        return self.rebuild([leaf / x for leaf in self.leaves])

    def __rtruediv__(self, y: Any) -> Any:
        again = further(y, self)
        if again is not None:
            return again
        raise NotATensor(f"{type(y).__name__} / d(tree)", "only d(y) can be divided by d(...)", "write d(y) / d(model)")

    def answers(self, divide: Callable[[Any], Any]) -> Any:
        """The tree of derivatives, one for each leaf; those of first order share their passes."""
        answers = [divide(leaf) for leaf in _flat(self)]
        shared = SharedPass([answer.ask for answer in answers])
        for place, answer in enumerate(answers):
            answer.share(shared, place)
        return self._rebuilt(iter(answers))

    def _rebuilt(self, answers: Iterator[Any]) -> Any:
        inner = (leaf._rebuilt(answers) if isinstance(leaf, Tree) else next(answers) for leaf in self.leaves)
        return self.rebuild(list(inner))

    def __repr__(self) -> str:
        return f"d(tree of {len(list(_flat(self)))} tensors)"


def _flat(tree: Tree) -> Iterator[Any]:
    for leaf in tree.leaves:
        if isinstance(leaf, Tree):
            yield from _flat(leaf)
        else:
            yield leaf


def tree_of(parts: tuple[list[Any], Callable[[list[Any]], Any]], d: Callable[[Any], Any]) -> Tree:
    leaves, rebuild = parts
    return Tree([d(leaf) for leaf in leaves], rebuild)


def further(answers: Any, z: Any) -> Any:
    """A tree of derivatives, differentiated once more leaf by leaf (inner trees come back here); None for others."""
    if isinstance(answers, dict):
        return {key: leaf / z for key, leaf in answers.items()}
    if isinstance(answers, tuple) and hasattr(answers, "_make"):
        return answers._make(leaf / z for leaf in answers)
    if isinstance(answers, (list, tuple)):
        return type(answers)(leaf / z for leaf in answers)
    return None
