"""Ctrl-C at a moment when half of something is done."""

from __future__ import annotations

import signal
import threading
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
        if threading.current_thread() is threading.main_thread():  # no other thread is ever interrupted
            before = signal.getsignal(signal.SIGINT)
            if callable(before):  # not where the process is killed, or where nothing happens
                self._before = before
                signal.signal(signal.SIGINT, self._note)

    def __exit__(self, *raised: object) -> None:
        before = self._before
        if before is None:
            return
        signal.signal(signal.SIGINT, before)
        if self._came is not None:
            before(*self._came)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame
