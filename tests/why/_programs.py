"""Small programs with one mistake each: the cause is named by a decorator, the line to blame by a mark in the source."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MARK = "# <-"


@dataclass(frozen=True)
class Program:
    """`run()` returns (y, x); `cause` is "none" for a healthy program; `at` is the element of x asked about."""

    run: Callable[[], Any]
    cause: str
    also: tuple[str, ...]
    at: Any
    line: int | None

    def __str__(self) -> str:
        return self.run.__name__


class Programs(list[Program]):
    """A table that fills itself: `@programs.show("detach")` above a function."""

    def show(self, cause: str, *also: str, at: Any = None) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
        def add(run: Callable[[], Any]) -> Callable[[], Any]:
            lines, start = inspect.getsourcelines(run)
            marked = [start + k for k, text in enumerate(lines) if MARK in text]
            self.append(Program(run, cause, also, at, marked[0] if marked else None))
            return run

        return add
