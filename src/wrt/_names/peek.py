"""Looking at the user's objects without running anything of theirs: no property, no `__getattr__`, no `__getitem__`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from inspect import CO_OPTIMIZED
from itertools import islice
from types import FrameType, MemberDescriptorType
from typing import Any

from wrt._core.thresholds import FEW_ITEMS
from wrt._core.where import user_frames
from wrt._names.thresholds import NAMED_FRAMES

MISSING: Any = object()


def container_type(value: Any) -> Any:
    """list, tuple or dict, whichever the value is or derives from; None for all else."""
    kind = type(value)
    if kind is list or kind is tuple or kind is dict:
        return kind
    return next((base for base in (list, tuple, dict) if issubclass(kind, base)), None)


def items(container: Any) -> list[tuple[Any, Any]]:
    """The first keys and values; keys that do not read well in a name are left out."""
    kind = container_type(container)
    if kind is dict:
        return [(key, value) for key, value in list(islice(dict.items(container), FEW_ITEMS)) if is_plain(key)]
    return list(enumerate(islice(kind.__iter__(container), FEW_ITEMS)))


def item(container: Any, key: Any) -> Any:
    """container[key], or MISSING; a plain key has a `__hash__` that Python wrote.

    >>> item({"k": 1}, "k"), item([1, 2], -1)
    (1, 2)
    """
    if not is_plain(key):
        return MISSING
    kind = container_type(container)
    if kind is dict:
        return dict.get(container, key, MISSING)
    inside = type(key) is int and -kind.__len__(container) <= key < kind.__len__(container)
    return kind.__getitem__(container, key) if inside else MISSING


def length(container: Any) -> int:
    return int(container_type(container).__len__(container))


def is_plain(key: Any) -> bool:
    """Whether a key reads well in a name: `outs[3]`, `cache['k']`, `grid[(0, 1)]`."""
    return type(key) in (int, str) or (type(key) is tuple and all(map(is_plain, key)))


def attribute(value: Any, path: tuple[str, ...]) -> Any:
    """An attribute of an attribute, as stored; None where there is none."""
    for name in path:
        value = _stored(value, name)
    return value


def _stored(value: Any, name: str) -> Any:
    try:
        own: Mapping[str, Any] = object.__getattribute__(value, "__dict__")
    except Exception:  # slots, or a proxy with opinions
        own = {}
    if name in own:
        return own[name]
    for kind in type(value).__mro__:
        if isinstance(slot := kind.__dict__.get(name), MemberDescriptorType):
            try:
                return slot.__get__(value)
            except AttributeError:  # declared, not set
                return None
    # Modules of the frameworks keep their tensors one dict deeper.
    return next((inner[name] for inner in own.values() if type(inner) is dict and name in inner), None)


def forget_locals(frame: FrameType | None) -> None:
    """Drop the copies of local variables that looking at frames left behind: they keep tensors alive after `del`.

    Before Python 3.13 a function's `f_locals` is a copy that stays with its frame; emptied, it is made anew when next
    asked for. To be called outside of trace functions, whose end writes that copy back.
    """
    if sys.version_info >= (3, 13):
        return
    for found in user_frames(frame):
        if found.f_code.co_flags & CO_OPTIMIZED:
            found.f_locals.clear()


def called(thing: Any, otherwise: str) -> str:
    """The variable that holds this very object in the user's own code, or what to say instead.

    >>> weights = object()
    >>> called(weights, "x"), called(object(), "x")
    ('weights', 'x')
    """
    if thing is None:
        return otherwise
    for frame in islice(user_frames(sys._getframe(1)), NAMED_FRAMES):
        for names in (frame.f_locals, frame.f_globals):
            for name, value in names.items():
                if value is thing and not name.startswith("_"):
                    return name
    return otherwise
