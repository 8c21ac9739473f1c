"""A jitted function of JAX's own is read when it is first called: thousands of calls, none of them the user's.

The watch for names is off from there until the recorder is given it as an operation.
"""

from __future__ import annotations

from types import FrameType, FunctionType
from typing import Any

import jax
import numpy as np

from wrt._backends.jax import compat
from wrt._backends.jax.recorder import Recorder
from wrt._names.settrace import CLOSED

PLAIN = (bool, int, float, complex, str, type(None), np.generic, np.ndarray, np.dtype, jax.Array)
"""What calls nothing of the user's when it is used, and neither does a tuple of it."""


def _calls_its_own(frame: FrameType) -> bool:
    """Whether a function of JAX's own is called and recorded, given nothing that could call the user's code."""
    called, given, words = (frame.f_locals.get(name) for name in ("fun", "args", "kwargs"))
    if not isinstance(compat.CONTEXT.trace, Recorder) or not isinstance(called, FunctionType):
        return False
    of_jax = called.__module__.startswith("jax.") and called.__closure__ is None  # a transformed function holds on to another
    return of_jax and _plain((*(given or ()), *(words or {}).values()))


def _plain(thing: Any) -> bool:
    return all(map(_plain, thing)) if type(thing) in (tuple, list) else isinstance(thing, PLAIN)


if compat.CALLS is not None:
    CLOSED[compat.CALLS] = _calls_its_own
