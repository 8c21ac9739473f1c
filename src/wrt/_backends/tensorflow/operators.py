"""Lean operators: while a recording lasts, `x @ w` of two plain tensors goes straight to its operation.

TensorFlow's own way there opens name scopes, promotes types and looks for other kinds of tensors. It enters some forty
functions, which takes longer than a small operation and its note in the recording together; for two eager tensors of one
real dtype it always ends in the same operation. Whatever else an operator is given, it is left to TensorFlow, and so is an
operation that fails: the error is TensorFlow's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.compat import EagerTensor, executing_eagerly
from wrt._backends.tensorflow.gradients import REAL, raw
from wrt._backends.tensorflow.standin import Make, behind, stand_in

Operator = Callable[[Any, Any], Any]


@contextmanager
def lean_operators() -> Iterator[None]:
    """Stand in front of the operators of tf.Tensor, but for those that somebody has replaced."""
    with ExitStack() as stack:
        for name, make in MADE.items():
            if behind(tf.Tensor, name) is TENSORFLOWS[name]:
                stack.enter_context(stand_in(tf.Tensor, name, make))
        yield


def _if_tensorflows(operator: Operator) -> Operator | None:
    code = getattr(inspect.unwrap(operator), "__code__", None)
    return operator if code is not None and code.co_filename == compat.BINARY_OPERATORS else None


def _lean(direct: Operator, rank: int | None = None) -> Make:
    """For tensors of one rank alone, if one is given: stacks of matrices are multiplied by another operation."""

    def make(original: Operator) -> Operator:
        def operate(x: Any, y: Any) -> Any:
            if type(x) is EagerTensor and type(y) is EagerTensor and executing_eagerly():
                kind = x._datatype_enum()
                if kind == y._datatype_enum() and kind in REAL and (rank is None or x._rank() == y._rank() == rank):
                    try:
                        return direct(x, y)
                    except Exception:  # TensorFlow says it in its own words
                        pass
            return original(x, y)

        return operate

    return make


MADE: dict[str, Make] = {
    "__add__": _lean(raw.AddV2),
    "__sub__": _lean(raw.Sub),
    "__mul__": _lean(raw.Mul),
    "__truediv__": _lean(raw.RealDiv),
    "__matmul__": _lean(raw.MatMul, rank=2),
}
TENSORFLOWS = {name: _if_tensorflows(behind(tf.Tensor, name)) for name in MADE}
