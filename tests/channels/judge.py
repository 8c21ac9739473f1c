"""A program through which numbers travel from x to y, asked by wrt and judged by finite differences of the program itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

import wrt
from wrt import d, errors

STEP = 1e-4


@dataclass(frozen=True)
class Row:
    """One channel: the words of the table in docs/meaning.md, what happens there, and the program.

    `happens` is "followed" (the answer is right), or what the error has to say; `program(x, record)` returns y.
    """

    name: str
    happens: str
    program: Callable[[Any, Any], Any]


def differences(row: Row, x: Any, numbers: Callable[[Any], Any], moved: Callable[[Any, Any], Any]) -> Any:
    """dy/dx by moving each element of x and running the program again; nothing is recorded."""
    columns = []
    start = numbers(x)
    for k in range(start.size):
        ends = []
        for sign in (1, -1):
            there = start.copy().reshape(-1)
            there[k] += sign * STEP
            ends.append(numbers(row.program(moved(there.reshape(start.shape), x), nullcontext)))
        columns.append((ends[0] - ends[1]) / (2 * STEP))
    return np.stack(columns, -1)


def ask(row: Row, x: Any, numbers: Callable[[Any], Any]) -> tuple[str, Any]:
    """ "answered" and the numbers, or "refused" and the error."""
    try:
        y = row.program(x, wrt.record)
        found = (d(y) / d(x)).value
    except errors.WrtError as error:
        return "refused", error
    return "answered", numbers(found)


def judge(row: Row, x: Any, numbers: Callable[[Any], Any], moved: Callable[[Any, Any], Any]) -> str:
    """In one word: "right", "refused" or "WRONG"; with the words of the error, or both numbers."""
    truth = differences(row, x, numbers, moved)
    how, found = ask(row, x, numbers)
    if how == "refused":
        assert len(str(found).splitlines()) == 3, str(found)
        return f"refused: {found}"
    if np.allclose(np.reshape(found, truth.shape), truth, rtol=1e-3, atol=1e-6):
        return "right"
    return f"WRONG: {np.reshape(found, -1)[:4]} instead of {truth.reshape(-1)[:4]}"


def rows_of(table: dict[str, tuple[str, Callable[[Any, Any], Any]]]) -> list[Row]:
    return [Row(name, *rest) for name, rest in table.items()]


def line_of(program: Callable[..., Any], words: str) -> str:
    """`test_torch.py:12` of the line of a program that contains some words."""
    lines, first = inspect.getsourcelines(program)
    return str(next(first + k for k, line in enumerate(lines) if words in line))
