"""A dict that forgets what nobody asked for longest."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any, TypeVar

Thing = TypeVar("Thing")


class Recent(dict[Hashable, Thing]):
    """At most `most` things.

    >>> kept = Recent(2)
    >>> kept["a"], kept["b"] = 1, 2
    >>> kept.get("a")
    1
    >>> kept["c"] = 3
    >>> list(kept)
    ['a', 'c']
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self._lock = threading.Lock()

    def get(self, key: Hashable, default: Any = None) -> Any:
        with self._lock:
            found = self.pop(key, None)
            if found is None:
                return default
            super().__setitem__(key, found)
            return found

    def __setitem__(self, key: Hashable, thing: Thing) -> None:
        with self._lock:
            self.pop(key, None)
            while len(self) >= self.most:
                del self[next(iter(self))]
            super().__setitem__(key, thing)
