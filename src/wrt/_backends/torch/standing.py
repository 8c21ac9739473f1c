"""Standing in the way: torch's functions that a function mode does not see are replaced while any thread records.

They are replaced once for the whole process, by functions that ask whether their own thread records: recordings of
several threads may begin and end in any order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

Undo: TypeAlias = Callable[[], None]

_RECORDING: dict[int, Any] = {}  # by thread, the outermost recording
_LOCK = threading.Lock()
_INSTALL: list[Callable[[], Undo]] = []
_UNDO: list[Undo] = []


def here() -> Any:
    """The recording of this thread; None where it has none."""
    return _RECORDING.get(threading.get_ident())


def stands_in(install: Callable[[], Undo]) -> Callable[[], Undo]:
    """Register what replaces a function of torch's when called, and returns how to put it back."""
    _INSTALL.append(install)
    return install


def begin(recording: Any) -> None:
    """This thread records from here on."""
    with _LOCK:
        if not _RECORDING:
            try:
                for install in _INSTALL:
                    _UNDO.append(install())
            except BaseException:
                _put_back()
                raise
        _RECORDING[threading.get_ident()] = recording


def end(recording: Any) -> None:
    """It does not any more; the last one puts everything back."""
    with _LOCK:
        for thread, its in list(_RECORDING.items()):
            if its is recording:
                del _RECORDING[thread]
        if not _RECORDING:
            _put_back()


def _put_back() -> None:
    while _UNDO:
        _UNDO.pop()()
