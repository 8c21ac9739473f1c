"""Who asked for an operation: the frames between TensorFlow's own call and the user's line."""

from __future__ import annotations

import os
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf

from wrt._core.where import Spot, is_user_code

WRT = str(Path(__file__).parents[2]) + os.sep
CALLS_THE_USER = tuple(f"{os.sep}{name}.py" for name in ("trace", "backend", "names", "patching", "events", "training"))
"""Files of wrt whose frames stand between the user's code and its operations."""

OURS: Spot = (compile("", "<wrt>", "exec"), 0)

WRAPPERS = frozenset(
    ["error_handler", "op_dispatch_handler", "binary_op_wrapper", "r_binary_op_wrapper", "new_func", "wrapper", "run_op",
     "tf_method"]
)  # fmt: skip
"""Functions of TensorFlow that only pass a call on."""


class _Files(dict[str, str]):
    """file name -> whose it is, "" for the libraries between; asked for every frame of every operation."""

    def __missing__(self, name: str) -> str:
        if name.startswith(WRT):
            found = "gate" if name.endswith(CALLS_THE_USER) else "ours"
        else:
            found = "user" if is_user_code(name) else ""
        self[name] = found
        return found


_files = _Files()


def asked_at(frame: FrameType) -> tuple[Spot | None, str]:
    """The user's place, and the function of the library that was called there.

    OURS where wrt itself asked for the operation, to answer a question inside the block.
    """
    inner: FrameType | None = frame
    called = False  # by a frame of wrt that runs the user's program: whoever of wrt called that one does not matter
    via = ""
    while inner is not None:
        code = inner.f_code
        found = _files[code.co_filename]
        if not found:
            name = code.co_name
            if name not in WRAPPERS and not name.startswith("_"):
                via = name
        elif found == "user":
            return (code, inner.f_lasti), via
        elif found == "gate":
            called = True
        elif not called:
            return OURS, ""
        inner = inner.f_back
    return None, via


def variables_of(frame: FrameType) -> list[Any]:
    """The variables that a function of TensorFlow was given."""
    code, there = frame.f_code, frame.f_locals
    given = [there.get(name) for name in code.co_varnames[: code.co_argcount]]
    flat = [item for value in given for item in (value if isinstance(value, (list, tuple)) else (value,))]
    return [item for item in flat if isinstance(item, tf.Variable)]  # never Keras' own: those are read in Python


def is_given(tensor: Any, frame: FrameType) -> bool:
    """Whether a function of TensorFlow was given this tensor itself, rather than a number that it made a tensor of."""
    flat = [item for value in frame.f_locals.values() for item in (value if isinstance(value, (list, tuple)) else (value,))]
    return any(item is tensor for item in flat)


def is_from_numpy(frame: FrameType) -> bool:
    """Whether the function of TensorFlow that ran the operation was given a NumPy array."""
    inner: FrameType | None = frame
    while inner is not None and inner.f_globals.get("__name__", "").startswith("tensorflow."):
        if any(isinstance(value, (np.ndarray, np.floating)) for value in inner.f_locals.values()):
            return True
        inner = inner.f_back
    return False


def how_read(frame: FrameType | None) -> str:
    """Whether numbers are read as a Python number or as an array."""
    while frame is not None and not is_user_code(frame.f_code.co_filename):
        if frame.f_code.co_name in ("__float__", "__int__", "__bool__", "__index__", "__complex__"):
            return frame.f_code.co_name
        frame = frame.f_back
    return "numpy"
