"""Small programs with one mistake each: the cause is named by a decorator, the line to blame by a mark in the source."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wrt

HERE = Path(__file__).parent
MARK = "# <-"


@dataclass(frozen=True)
class Program:
    """`run()` returns (y, x), of JAX (f, args); `cause` is "none" for a healthy program; `at` is the element of x asked about.

    A `hint` cannot be certain: what is wrong leaves no line behind.
    """

    run: Callable[[], Any]
    cause: str
    also: tuple[str, ...]
    at: Any
    line: int | None
    hint: bool

    def __str__(self) -> str:
        return self.run.__name__


class Programs(list[Program]):
    """A table that fills itself: `@programs.show("detach")` above a function."""

    def show(
        self, cause: str, *also: str, at: Any = None, hint: bool = False
    ) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
        def add(run: Callable[[], Any]) -> Callable[[], Any]:
            lines, start = inspect.getsourcelines(run)
            marked = [start + k for k, text in enumerate(lines) if MARK in text]
            self.append(Program(run, cause, also, at, marked[0] if marked else None, hint))
            return run

        return add


def programs(framework: str) -> list[Program]:
    """The tables of a framework that stand in this folder; none where it is not installed."""
    if importlib.util.find_spec(framework) is None:
        return []
    parts = [path.stem for path in sorted(HERE.glob(f"{framework}_*.py"))]
    return [program for part in parts for program in importlib.import_module(f"tests.why.{part}").programs]


def cases(framework: str) -> list[Program]:
    """The failures of a framework that people asked about."""
    found: list[Program] = importlib.import_module(f"tests.why.cases.{framework}").programs
    return found


def findings(framework: str, program: Program) -> wrt.Findings:
    """What `why` says of a run, or of the error it ended with."""
    try:
        if framework == "jax":
            f, args = program.run()
            t = wrt.trace(f, *args)
            y, x = t.output, t.inputs[0]
        else:
            with wrt.record():
                y, x, *_ = program.run()
        return wrt.why(y, x if program.at is None else wrt.d(x)[program.at])
    except Exception as error:
        return wrt.why(error)


def hold(framework: str, program: Program) -> None:
    """The cause and the line of a failure; nothing certain about a healthy program."""
    found = findings(framework, program)
    if program.cause == "none":
        assert not found.certain, str(found)
        return
    assert found, "nothing found"
    assert found[0].cause in (program.cause, *program.also), str(found)
    assert program.line in (None, found[0].line), str(found)
    assert program.line is None or found[0].file == inspect.getsourcefile(program.run), str(found)
    assert not (program.hint and found[0].certain), str(found)
