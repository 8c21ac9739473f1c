"""Facts, and how two recordings of them are compared."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

Facts = dict[str, object]
GRACE = 2.0  # seconds a thread that was told to stop may take to do so


class Changed(AssertionError):
    """Something that is not wrt's was changed."""


@dataclass(frozen=True, eq=False)
class Is:
    """The very same object, not merely an equal one."""

    thing: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Is) and self.thing is other.thing

    def __repr__(self) -> str:
        return "None" if self.thing is None else f"the {type(self.thing).__name__} at {id(self.thing):#x}"


@dataclass(frozen=True)
class Bits:
    """The bytes of an array: NaN equals NaN, and 0.0 differs from -0.0."""

    data: bytes

    def __repr__(self) -> str:
        return f"{len(self.data)} bytes, hash {hash(self.data) & 0xFFFFFF:06x}"


@dataclass(frozen=True)
class Threads:
    """Threads that were started may have ended; none may have come to stay."""

    alive: frozenset[threading.Thread]

    def agrees(self, after: object) -> bool:
        assert isinstance(after, Threads)
        new = after.alive - self.alive
        for thread in new:
            thread.join(GRACE)
        return not any(thread.is_alive() for thread in new)


@dataclass(frozen=True)
class Filters:
    """Warning filters. Importing a package may add some; nobody may take one away."""

    filters: tuple[object, ...]
    modules: int

    def agrees(self, after: object) -> bool:
        assert isinstance(after, Filters)
        if self.filters == after.filters:
            return True
        imported = after.modules > self.modules
        return imported and all(entry in after.filters for entry in self.filters)


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """What changed, one line each. A fact that was not known before (its framework came later) is not compared.

    >>> differences({"grad mode": True, "dtype": 1}, {"grad mode": False, "dtype": 1, "new": 2})
    ['grad mode: was True, is False']
    """
    return [
        f"{name}: was {was!r}, is {after[name]!r}" if name in after else f"{name}: was {was!r}, is gone"
        for name, was in before.items()
        if name not in after or not _agree(was, after[name])
    ]


def require_same(before: Mapping[str, object], after: Mapping[str, object], cause: BaseException | None = None) -> None:
    """Raise `Changed` with every difference, chained to the exception that was on its way, if any."""
    if lines := differences(before, after):
        raise Changed("\n  ".join(["changed and not restored:", *lines])) from cause


def _agree(before: object, after: object) -> bool:
    if isinstance(before, Threads | Filters):
        return before.agrees(after)
    return before == after
