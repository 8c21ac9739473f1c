"""A bar for long work: what is being computed and the time left. Silent where nobody would see it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any

PATIENCE = 2.0  # seconds of work that need no bar
LISTENER: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("wrt_progress", default=None)
"""Who else wants to hear how far the work is (what, done, of how many); what it raises ends the work."""

WITHIN: ContextVar[bool] = ContextVar("wrt_progress_within", default=False)
"""Whether the work is a part of longer work that has a bar of its own: two at once would overwrite each other."""


class Progress:
    """Appears once the work is expected to take longer than about two seconds; gone when it ends, also by Ctrl-C."""

    __slots__ = ("_bar", "_done", "_started", "_task", "_total", "_what")

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        self._started = time.perf_counter()
        return self

    def advance(self, count: int) -> None:
        self._done += count
        listener = LISTENER.get()
        if listener is not None:
            listener(self._what, self._done, self._total)
        if self._bar is not None:
            self._bar.advance(self._task, count)
        elif self._expected() > PATIENCE and self._done < self._total and not WITHIN.get() and watched():
            self._show()

    def _expected(self) -> float:
        return (time.perf_counter() - self._started) * self._total / max(1, self._done)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
        self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._what, total=self._total, completed=self._done)
        self._bar.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()


def watched() -> bool:
    """Whether a person sees what is printed: a terminal or a notebook."""
    if "ipykernel" in sys.modules and "IPython" in sys.modules:
        return True
    return bool(getattr(sys.stderr, "isatty", lambda: False)())
