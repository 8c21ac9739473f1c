"""How long it will still take: a range from what the latest jobs took, not a wish."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import Any

import numpy as np

from wrt._run.progress import PATIENCE, WITHIN, watched

LATEST = 64
MANY = 3  # jobs before anything is said


class Estimate:
    """Seconds left, low and high, for jobs of varying length.

    >>> estimate = Estimate(10)
    >>> for _ in range(4):
    ...     estimate.took(2.0)
    >>> estimate.left()
    (12.0, 12.0)
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self._seconds: deque[float] = deque(maxlen=LATEST)

    def took(self, seconds: float) -> None:
        """One more is done, so many seconds after the one before it."""
        self.done += 1
        self._seconds.append(seconds)

    def left(self) -> tuple[float, float] | None:
        """What remains if the rest goes like the latest: mean and twice the uncertainty of their sum."""
        if len(self._seconds) < MANY:
            return None
        rest = self.total - self.done
        mean, spread = float(np.mean(self._seconds)), float(np.std(self._seconds))
        uncertain = 2 * spread * (rest / len(self._seconds) ** 0.5 if rest else 0.0)
        return max(0.0, rest * mean - uncertain), rest * mean + uncertain

    def __str__(self) -> str:
        found = self.left()
        if found is None:
            return "time left not known yet"
        low, high = map(clock, found)
        return f"{high} left" if low == high else f"{low} to {high} left"


def clock(seconds: float) -> str:
    """Seconds as people say them.

    >>> clock(7), clock(200), clock(9000)
    ('7 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Ahead:
    """A bar with the estimate, in terminals and notebooks, once the work takes longer than about two seconds."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self.estimate = Estimate(total)
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Ahead:
        self._started = self._last = time.perf_counter()
        self._within = WITHIN.set(True)
        return self

    def advance(self, seconds: float) -> None:
        """One job is done, which took so long; what was there before never counts."""
        self.estimate.took(seconds)
        self._show()

    def advance_by_crew(self) -> None:
        """One of several that go on at once is done: what counts is the time since the one before."""
        now = time.perf_counter()
        self.advance(now - self._last)
        self._last = now

    def _show(self) -> None:
        estimate = self.estimate
        if self._bar is None:
            elapsed = time.perf_counter() - self._started
            if elapsed * estimate.total / max(1, estimate.done) < PATIENCE or not watched():
                return
            self._open()
        self._bar.update(self._task, completed=estimate.done, left=str(estimate))

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        counted = TextColumn("{task.completed}/{task.total}")
        columns = (TextColumn("{task.description}"), BarColumn(), counted, TextColumn("{task.fields[left]}"))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._what, total=self.estimate.total, left=str(self.estimate))
        self._bar.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        WITHIN.reset(self._within)
        if self._bar is not None:
            self._bar.stop()
