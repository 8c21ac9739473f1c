"""Replacing a function of the framework while a recording or a watch lasts, and never longer.

Recordings of several threads may begin and end in any order. Each replaces a function for its own thread alone, and the
function itself is back when the last of them has gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Make = Callable[[Callable[..., Any]], Callable[..., Any]]


class _Stack:
    """The original of one attribute, and what is in front of it, the innermost first."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name
        self.original = vars(owner)[name]
        self.layers: list[tuple[Make, int]] = []

    def rebuild(self) -> None:
        call = self.original
        for make, thread in self.layers:
            call = _for_one_thread(make(call), call, thread)
        setattr(self.owner, self.name, call)


_LOCK = threading.RLock()
_STACKS: dict[tuple[int, str], _Stack] = {}


class Patch:  # a recording enters a dozen of these: a generator would take as long as a small model
    """`make(original)` instead of `owner.name` inside the block, for calls from this thread."""

    __slots__ = ("key", "layer", "owner", "stack")

    def __init__(self, owner: Any, name: str, make: Make) -> None:
        self.owner, self.key = owner, (id(owner), name)
        self.layer = (make, threading.get_ident())

    def __enter__(self) -> None:
        with _LOCK:
            found = _STACKS.get(self.key)
            if found is None:
                found = _STACKS[self.key] = _Stack(self.owner, self.key[1])
            self.stack = found
            found.layers.append(self.layer)
            found.rebuild()

    def __exit__(self, *exception: object) -> None:
        with _LOCK:
            self.stack.layers.remove(self.layer)
            self.stack.rebuild()
            if not self.stack.layers:
                del _STACKS[self.key]


def _for_one_thread(wrapped: Callable[..., Any], inner: Callable[..., Any], thread: int) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        chosen = wrapped if threading.get_ident() == thread else inner
        return chosen(*arguments, **keywords)

    return call


class Switch:
    """A setting of the whole process that is on while any recording lasts, and back as it was after the last."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None], setting: Any) -> None:
        self.read, self.write, self.setting = read, write, setting
        self.users = 0
        self.before: Any = None

    @contextmanager
    def on(self) -> Iterator[None]:
        with _LOCK:
            if not self.users:
                self.before = self.read()
                self.write(self.setting)
            self.users += 1
        try:
            yield
        finally:
            with _LOCK:
                self.users -= 1
                if not self.users:
                    self.write(self.before)
