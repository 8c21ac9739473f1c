"""A program in which numbers travel from x to y, asked by wrt and judged by finite differences of the program itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from wrt import errors

WORDS = {
    "right": "followed: the answer is right",
    "cut": "`GradientCut`, with the line",
    "left": "`NoPath`, with the line",
    "since": "`NotRecorded`",
    "unseen": "**not seen**: exact zeros, though y may move",
}
"""What happens at a channel, in the words of the table."""
KINDS = {"cut": errors.GradientCut, "left": errors.NoPath, "since": errors.NotRecorded}
NO_LINE = ("before the block", "torch.func, TorchScript or a thread", "after the recording had ended", "the recording of")


def words(happens: str) -> str:
    """Some of these, each once, in the words of the table.

    >>> words("left or right")
    '`NoPath`, with the line; or followed: the answer is right'
    """
    return "; or ".join(dict.fromkeys(WORDS[one] for one in happens.split(" or ")))


def table(channels: dict[str, tuple[str, list[Any]]]) -> str:
    """The lines of docs/meaning.md for one framework."""
    rows = [f"| {name} | {words(happens)} |" for name, (happens, _) in channels.items()]
    return "\n".join(["| numbers travel by | what happens |", "|---|---|", *rows])


def differences(run: Callable[[Any], Any], start: Any, step: float) -> Any:
    """dy/dx by moving each element of x and running the program again; nothing is recorded."""
    columns = []
    for k in range(start.size):
        ends = []
        for sign in (1, -1):
            there = start.copy().reshape(-1)
            there[k] += sign * step
            ends.append(run(there.reshape(start.shape)))
        columns.append((ends[0] - ends[1]) / (2 * step))
    return np.stack(columns, -1)


def judge(happens: str, ask: Callable[[], Any], truth: Any, *, tolerance: float = 1e-3) -> None:
    """The answer is right, or refused in three lines that name the line; where it is said to be followed, it is right."""
    refused: errors.WrtError | None = None
    try:
        found = ask()
    except errors.WrtError as error:
        refused = error
    if refused is not None:
        text = str(refused)
        assert len(text.splitlines()) == 3, text
        assert re.search(r"_rows\.py:\d+", text) or any(one in text for one in NO_LINE), text
        assert type(refused) in [KINDS[one] for one in happens.split(" or ") if one in KINDS], text
        return
    if happens == "unseen":
        return
    assert "right" in happens, found
    np.testing.assert_allclose(np.reshape(found, truth.shape), truth, rtol=tolerance, atol=tolerance * 1e-2)
