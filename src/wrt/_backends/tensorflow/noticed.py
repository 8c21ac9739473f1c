"""The functions of TensorFlow that a recording stands in front of, to be told of what passes them.

Beside `compat`, the only place that knows private parts of TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import record as tape_stack
from tensorflow.python.framework import constant_op, ops
from tensorflow.python.util import traceback_utils

from wrt._backends.tensorflow.standin import stand_in

Noticed = AbstractContextManager[None]
Tensor = Any


def reads(notice: Callable[[Tensor], None]) -> Noticed:
    """Call `notice` for every tensor whose numbers leave TensorFlow through Python: numpy(), float(), __array__()."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(self: Any) -> Any:
            notice(self)
            return original(self)

        return noticed

    return stand_in(ops._EagerTensorBase, "_numpy", make)


def custom_gradients(notice: Callable[..., None]) -> Noticed:
    """Call `notice(name, outputs, inputs, backward)` for every operation whose gradient is about to be recorded as a whole."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(op: Any, outputs: Any, inputs: Any, *rest: Any, **keywords: Any) -> Any:
            notice(op, outputs, inputs, rest[0] if rest else keywords.get("backward_function"))
            return original(op, outputs, inputs, *rest, **keywords)

        return noticed

    return stand_in(tape_stack, "record_operation", make)


def host_functions(notice: Callable[..., None]) -> Noticed:
    """Call `notice(inputs, outputs)` for every Python function that is called with arrays: numpy_function."""
    from tensorflow.python.ops import script_ops

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(func: Any, inp: Any, Tout: Any, *rest: Any, **keywords: Any) -> Any:
            made = original(func, inp, Tout, *rest, **keywords)
            notice(inp, made)
            return made

        return noticed

    return stand_in(script_ops, "py_func_common", make)


@contextmanager
def arrays(notice: Callable[[Tensor], None]) -> Iterator[None]:
    """Call `notice` for every tensor that is made of a NumPy array, or of memory that somebody else shares."""

    def shared(original: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(*arguments: Any) -> Any:
            made = original(*arguments)
            notice(made)
            return made

        return noticed

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(value: Any, *rest: Any, **keywords: Any) -> Any:
            made = original(value, *rest, **keywords)
            if isinstance(value, (np.ndarray, np.generic)):
                notice(made)
            return made

        return noticed

    with stand_in(constant_op, "convert_to_eager_tensor", make), stand_in(pywrap_tfe, "TFE_FromDlpackCapsule", shared):
        yield


@contextmanager
def failures(notice: Callable[[], None]) -> Iterator[None]:
    """Call `notice` when an operation raises, before the user's code can handle it."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(*arguments: Any, **keywords: Any) -> Any:
            notice()
            return original(*arguments, **keywords)

        return noticed

    kernels, checks = (ops, "raise_from_not_ok_status"), (traceback_utils, "_process_traceback_frames")
    with stand_in(*kernels, make), stand_in(*checks, make):
        yield
