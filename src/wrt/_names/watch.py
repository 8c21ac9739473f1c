"""Names without annotation: who was bound to which tensor while a piece of code ran."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from wrt._core.bindings import Binding
from wrt._names.monitoring import MonitoringWatch, tool_is_free
from wrt._names.observer import Note, Observer
from wrt._names.settrace import SettraceWatch


class Watch(Protocol):
    """A way to learn what the running frames do."""

    observer: Observer

    def start(self, frame: Any) -> None: ...
    def stop(self) -> None: ...


class Watcher:
    """Reports every new binding of a name to a tensor, in the user's own frames of the current thread.

    >>> seen = []
    >>> with Watcher(lambda value: isinstance(value, float), lambda binding: seen.append(binding.name)):
    ...     x = 1.5
    ...     y, n = 2 * x, 3
    >>> seen
    ['x', 'y']
    """

    __slots__ = ("_is_tensor", "_note", "_on_bind", "_watches")

    def __init__(
        self, is_tensor: Callable[[Any], bool], on_bind: Callable[[Binding], object], note: Note | None = None
    ) -> None:
        self._is_tensor = is_tensor
        self._on_bind = on_bind
        self._note = note
        self._watches: list[Watch] = []

    def __enter__(self) -> Watcher:
        observer = Observer(self._is_tensor, self._on_bind, self._note)
        watch: Watch = MonitoringWatch(observer) if tool_is_free() else SettraceWatch(observer)
        watch.start(sys._getframe(1))
        self._watches.append(watch)
        return self

    def __exit__(self, *exception: object) -> None:
        watch = self._watches.pop()
        try:
            watch.stop()
        finally:
            watch.observer.let_go()
