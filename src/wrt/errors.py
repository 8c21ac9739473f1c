"""What can go wrong, as facts. Every message has three lines: what happened, where things stand, what to write.

    WrtError
    ├── NoPath            (RuntimeError)  no gradient path between the two, reason not recorded
    │   └── GradientCut   (RuntimeError)  the value goes on, the gradient stops at a known line
    ├── NotRecorded       (RuntimeError)  the tensor carries no history to differentiate
    ├── GraphFreed        (RuntimeError)  an earlier backward freed the history
    ├── EngineRefused     (RuntimeError)  the framework's own engine cannot answer
    ├── NotDifferentiable (TypeError)     integers, booleans, strings: there is no derivative
    ├── NotATensor        (TypeError)     d() of something that is not a tensor or a tree of them
    ├── DifferentRuns     (ValueError)    y and x come from different runs or frameworks
    ├── NotHolomorphic    (ValueError)    a complex question with two real answers
    ├── WrongShape        (ValueError)    a vector that does not fit, a value that is not one number
    ├── WrongQuery        (ValueError)    a question in the terminal that could not be read
    ├── WrongIndex        (IndexError)    an index that does not fit the tensor
    ├── UnknownName       (KeyError)      no tensor of that name was recorded
    ├── CannotTravel      (TypeError)     a live graph was to go to another process
    ├── Unfinished        (RuntimeError)  parts of a large answer are missing, and which
    ├── NotInstalled      (ImportError)   an optional package is needed
    └── TooLarge          (MemoryError)   the answer would not fit in memory
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "CannotTravel", "DifferentRuns", "EngineRefused", "GradientCut", "GraphFreed", "NoPath", "NotATensor", "NotDifferentiable",
    "NotHolomorphic", "NotInstalled", "NotRecorded", "TooLarge", "Unfinished", "UnknownName", "WrongIndex", "WrongQuery",
    "WrongShape", "WrtError",
]


_explains: list[Callable[[WrtError], Any]] = []  # whoever can say more about an error; a layer that stands above this one


class WrtError(Exception):
    """A fact about the question: `what` happened, `where` things stand, what to `write` instead."""

    def __init__(self, what: str, where: str, write: str, *, finding: Any = None) -> None:
        super().__init__(what, where, write)
        self.what = what
        self.where = where
        self.write = write
        self._finding = finding

    @property
    def finding(self) -> Any:
        """What `wrt.why` would say: a `Finding`, or None where it has nothing to add."""
        if self._finding is None and _explains:
            self._finding = _explains[-1](self)
        return self._finding

    @finding.setter
    def finding(self, found: Any) -> None:
        self._finding = found

    def __str__(self) -> str:
        return f"{self.what}\n  {self.where}\n  {self.write}"


class NoPath(WrtError, RuntimeError):
    """No gradient path from x to y, and not enough was recorded to say why."""


class GradientCut(NoPath):
    """y is computed from x, but a known line stops the gradient."""


class NotRecorded(WrtError, RuntimeError):
    """The tensor carries no history to differentiate."""


class GraphFreed(WrtError, RuntimeError):
    """An earlier backward freed the history."""


class EngineRefused(WrtError, RuntimeError):
    """The framework's own engine cannot answer; its words are in the second line."""


class NotDifferentiable(WrtError, TypeError):
    """Integers, booleans and strings have no derivative."""


class NotATensor(WrtError, TypeError):
    """`d()` was given something that is neither a tensor nor a tree of tensors."""


class DifferentRuns(WrtError, ValueError):
    """y and x come from different runs or different frameworks."""


class NotHolomorphic(WrtError, ValueError):
    """A complex derivative does not exist; two real ones do."""


class WrongShape(WrtError, ValueError):
    """A vector that does not fit, or an answer that is not one number."""


class WrongQuery(WrtError, ValueError):
    """A question in the terminal that could not be read."""


class WrongIndex(WrtError, IndexError):
    """An index that does not fit the tensor."""


class UnknownName(WrtError, KeyError):
    """No tensor of that name was recorded."""


class CannotTravel(WrtError, TypeError):
    """A live graph cannot go to another process; a `wrt.Model` can."""


class Unfinished(WrtError, RuntimeError):
    """Parts of a large answer are missing; what is there is right, and asking again computes only the rest."""


class NotInstalled(WrtError, ImportError):
    """An optional package is needed for this."""


class TooLarge(WrtError, MemoryError):
    """The answer would not fit in memory; refused before anything was allocated."""
