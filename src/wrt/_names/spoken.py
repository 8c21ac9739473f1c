"""What the user calls an object: looked up where an error is about to be raised, never before."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

from wrt._core.where import user_frames

FRAMES = 3  # the function that asked, and the two that called it


def called(thing: Any, otherwise: str) -> str:
    """The variable that holds this very object in the user's own code, or what to say instead.

    >>> weights = object()
    >>> called(weights, "x"), called(object(), "x")
    ('weights', 'x')
    """
    if thing is None:
        return otherwise
    for frame in islice(user_frames(sys._getframe(1)), FRAMES):
        for names in (frame.f_locals, frame.f_globals):
            for name, value in names.items():
                if value is thing and not name.startswith("_"):
                    return name
    return otherwise
