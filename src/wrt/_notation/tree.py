"""Trees: `d(loss) / d(model)` gives one Derivative for each parameter, from one shared pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wrt._notation.shared import SharedPass

if TYPE_CHECKING:
    from wrt._notation.d import Differential


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

    def map_under(self, y: Differential) -> Any:
        """`y / tree`: the tree of derivatives, whose leaves share their passes."""
        from wrt._notation.d import derivative

        flat = list(_flat(self))
        answers = [derivative(y, leaf, check=False) for leaf in flat]
        shared = SharedPass(answers)
        for answer in answers:
            answer.share(shared)
        return self._rebuilt(iter(answers))

    def _rebuilt(self, answers: Any) -> Any:
        return self.rebuild([leaf._rebuilt(answers) if isinstance(leaf, Tree) else next(answers) for leaf in self.leaves])

    def __repr__(self) -> str:
        return f"d(tree of {len(list(_flat(self)))} tensors)"


def _flat(tree: Tree) -> Any:
    for leaf in tree.leaves:
        if isinstance(leaf, Tree):
            yield from _flat(leaf)
        else:
            yield leaf


def tree_of(parts: tuple[list[Any], Callable[[list[Any]], Any]], d: Callable[[Any], Any]) -> Tree:
    leaves, rebuild = parts
    return Tree([d(leaf) for leaf in leaves], rebuild)
