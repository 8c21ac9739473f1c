"""Names are watched by a trace function, which makes Python slow in the frames of the library too; there it is paused.

One `x @ w` enters some forty functions of TensorFlow, and none of them binds a name of the user's. Where an operation is
called that cannot call the user back, tracing is switched off, and what is left with that call in place of a trace function
switches it on again: it goes when its frame goes. (An exception keeps frames: there, it is switched on when the exception is
made.) From Python 3.12 on none of this is needed: there, only the user's own code is watched to begin with.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from sys import gettrace, settrace
from threading import get_ident
from types import FrameType
from typing import Any

from wrt._backends.tensorflow import compat

TAKE_NO_FUNCTIONS = frozenset(
    ["array_ops", "array_ops_stack", "clip_ops", "embedding_ops", "linalg_ops", "math_ops", "nn_impl", "nn_ops",
     "special_math_ops", "tensor_getitem_override", "tensor_math_operator_overrides", "weak_tensor_ops"]
)  # fmt: skip
"""Modules of operations on tensors and numbers; those that were generated are such too."""


class _Files(dict[str, bool | None]):
    """file -> whether its functions call nobody back; None where that depends on what they pass on."""

    def __missing__(self, file: str) -> bool | None:
        self[file] = found = None if file == compat.ERROR_HANDLER else _takes_no_functions(file)
        return found


class _Functions(dict[Any, bool]):
    """The same for the functions that TensorFlow's error handler stands in front of."""

    def __missing__(self, function: Any) -> bool:
        self[function] = found = callable(function) and _takes_no_functions(inspect.unwrap(function).__code__.co_filename)
        return found


def _takes_no_functions(file: str) -> bool:
    folder, name = os.path.split(file.removesuffix(".py"))
    listed = folder == compat.OPERATIONS and (name in TAKE_NO_FUNCTIONS or name.startswith("gen_"))
    return listed or file == compat.BINARY_OPERATORS


_files = _Files()
_functions = _Functions()


class PausedTracing:
    """The trace function of one thread, with the one behind it that it spares the calls of TensorFlow."""

    __slots__ = ("open", "thread", "trace")

    def __init__(self, watch: Any) -> None:
        self.open = True
        self.thread = get_ident()

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            calls_nobody = _files[frame.f_code.co_filename]
            if calls_nobody is False:
                return watch(frame, event, arg)
            if calls_nobody is None and not _functions[frame.f_locals.get("fn")]:
                return watch(frame, event, arg)
            if gettrace() is not trace:  # behind another trace function, it is not ours to switch off
                return watch(frame, event, arg)
            left = _Left()
            left.by = self
            settrace(None)
            return left

        self.trace = trace

    def resume(self) -> None:
        """Trace again, unless that is over or somebody else traces this thread by now."""
        if self.open and gettrace() is None and get_ident() == self.thread:
            settrace(self.trace)


class _Left:
    """The trace function of a frame that is not traced: switches tracing on again when nobody holds it any more."""

    __slots__ = ("by",)
    by: PausedTracing

    def __call__(self, frame: FrameType, event: str, arg: Any) -> _Left:
        return self  # tracing was switched on while the frame still runs

    def __del__(self) -> None:
        by = self.by
        if by.open and gettrace() is None and get_ident() == by.thread:  # `resume`, without the call
            settrace(by.trace)


@contextmanager
def pause_inside_operations() -> Iterator[Any]:
    """Spare the trace function that has just been installed what it need not see; None where there is none."""
    watch = gettrace()
    if watch is None:
        yield None
        return
    paused = PausedTracing(watch)
    settrace(None)  # what it takes to begin and to end is not the user's
    try:
        with compat.notice_failures(paused.resume):
            settrace(paused.trace)
            try:
                yield paused.trace
            finally:
                paused.open = False
                if gettrace() is paused.trace:
                    settrace(None)
    finally:
        if gettrace() is None:
            settrace(watch)
