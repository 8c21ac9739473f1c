"""Ctrl-C at a moment when half of something is done."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # without the enumerations of `signal`: they take longer than all this
from types import FrameType
from typing import Any


class held_back:
    """Inside, Ctrl-C waits: it is raised at the end. For what has to be done whole, such as putting functions back.

    >>> import signal
    >>> done = []
    >>> try:
    ...     with held_back():
    ...         signal.raise_signal(signal.SIGINT)
    ...         done.append("whole")
    ... except KeyboardInterrupt:
    ...     done.append("then stopped")
    >>> done
    ['whole', 'then stopped']
    """

    __slots__ = ("_before", "_came")

    def __init__(self) -> None:
        self._before: Any = None
        self._came: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> None:
        try:
            self._before = _signal.signal(_signal.SIGINT, self._note)
        except ValueError:  # another thread: these are never interrupted
            return
        if not callable(self._before):  # the process is to be killed, or nothing is to happen
            _signal.signal(_signal.SIGINT, self._before)

    def __exit__(self, *raised: object) -> None:
        before = self._before
        if not callable(before):
            return
        _signal.signal(_signal.SIGINT, before)
        if self._came is not None:
            before(*self._came)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame
