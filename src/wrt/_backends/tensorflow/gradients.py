"""Lean gradients of the operations that most programs are made of.

A tape calls one Python function of TensorFlow's for every operation of a pull. Behind it stand rules that work in graphs
too, and they take longer than the numbers do: shapes are computed by operations of their own, a broadcast `x + b` runs
eight of them, and a convolution finds the gradient of its kernel though nobody asked. While wrt sweeps, the rules below
answer instead: the same formulas as calls of the plain operations, with shapes read in Python, and for those inputs alone
that somebody wants. Whatever they do not know they leave to TensorFlow: graphs, complex numbers, gradients of the user's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.compat import EagerTensor, executing_eagerly, gradient_is_tensorflows
from wrt._backends.tensorflow.standin import Switch

Tensor = Any
Shape = tuple[int, ...]
Pulled: TypeAlias = list[Tensor | None] | None  # None: this case is TensorFlow's
Rule: TypeAlias = Callable[[Any, Sequence[Tensor], Sequence[Tensor], Tensor, Sequence[int]], Pulled]
"""attributes, inputs, outputs, the gradient u of the output, which inputs nobody wants -> a gradient for each input."""


class _Raw:
    """tf.raw_ops, without the wrapper around each that only forbids positional arguments."""

    def __getattr__(self, op: str) -> Callable[..., Any]:
        found: Callable[..., Any] = inspect.unwrap(getattr(tf.raw_ops, op))
        setattr(self, op, found)
        return found


raw = _Raw()
REAL = frozenset(dtype.as_datatype_enum for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64))
KEPT = 256  # small tensors that are used again and again: shapes, axes, factors


def lean(
    op: str, attributes: Any, count: int, inputs: Any, outputs: Any, seeds: Any, skip: Sequence[int] | None, scope: Any
) -> Any:
    """What the tape calls for each operation while wrt sweeps."""
    rule = RULES.get(op)
    if rule is not None:
        u = seeds[0]
        known = type(u) is EagerTensor and u._datatype_enum() in REAL and executing_eagerly()
        if known and gradient_is_tensorflows(op):
            found = rule(attributes, inputs, outputs, u, skip or ())
            if found is not None:
                return found
    return compat.gradient_function(op, attributes, count, inputs, outputs, seeds, skip, scope)


LEAN = Switch(lambda: compat.gradient_function, compat.call_for_gradients, lean)
"""Held around a sweep, in as many threads as like."""


@lru_cache(KEPT)
def numbers(values: Shape, dtype: Any = tf.int32) -> Tensor:
    """A shape, or axes: TensorFlow takes them from a tensor five times faster than from a tuple."""
    return tf.constant(values, dtype)


@lru_cache(KEPT)
def number(value: float, kind: int) -> Tensor:
    return tf.constant(value, compat.dtype_of(kind))


def setting(attributes: Any, name: str) -> Any:
    """One of an operation's attributes, which come as names and values in turn."""
    return attributes[attributes.index(name) + 1]


# ---------------------------------------------------------------- one input, element by element

Formula: TypeAlias = Callable[[Tensor, Tensor], Tensor]

BY_RESULT: dict[str, Formula] = {
    "Elu": lambda u, y: raw.EluGrad(gradients=u, outputs=y),
    "Exp": lambda u, y: raw.Mul(x=u, y=y),
    "Relu": lambda u, y: raw.ReluGrad(gradients=u, features=y),
    "Rsqrt": lambda u, y: raw.RsqrtGrad(y=y, dy=u),
    "Sigmoid": lambda u, y: raw.SigmoidGrad(y=y, dy=u),
    "Sqrt": lambda u, y: raw.SqrtGrad(y=y, dy=u),
    "Tanh": lambda u, y: raw.TanhGrad(y=y, dy=u),
}
"""u and y = f(x) -> the gradient of x. A tape keeps the input or the result of an operation, as its gradient needs."""

BY_INPUT: dict[str, Formula] = {
    "Log": lambda u, x: raw.Mul(x=u, y=raw.Reciprocal(x=x)),
    "Square": lambda u, x: raw.Mul(x=u, y=raw.Mul(x=x, y=number(2.0, compat.kind(x)))),
}
"""u and x -> the gradient of x."""


def _by_result(formula: Formula) -> Rule:
    return lambda attributes, inputs, outputs, u, skip: [formula(u, outputs[0])]


def _by_input(formula: Formula) -> Rule:
    return lambda attributes, inputs, outputs, u, skip: [formula(u, inputs[0])]


# ---------------------------------------------------------------- two inputs that are broadcast


def _half_of_squared_difference(u: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return raw.Mul(x=raw.Mul(x=number(2.0, compat.kind(u)), y=u), y=raw.Sub(x=x, y=y))


def _where(mask: Tensor, u: Tensor) -> Tensor:
    return raw.SelectV2(condition=mask, t=u, e=number(0.0, compat.kind(u)))


def _where_not(mask: Tensor, u: Tensor) -> Tensor:
    return raw.SelectV2(condition=mask, t=number(0.0, compat.kind(u)), e=u)


BROADCAST: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "AddV2": (lambda u, x, y: u, lambda u, x, y: u),
    "Maximum": (
        lambda u, x, y: _where(raw.GreaterEqual(x=x, y=y), u),
        lambda u, x, y: _where_not(raw.GreaterEqual(x=x, y=y), u),
    ),
    "Minimum": (
        lambda u, x, y: _where(raw.LessEqual(x=x, y=y), u),
        lambda u, x, y: _where_not(raw.LessEqual(x=x, y=y), u),
    ),
    "Mul": (lambda u, x, y: raw.Mul(x=u, y=y), lambda u, x, y: raw.Mul(x=x, y=u)),
    "RealDiv": (
        lambda u, x, y: raw.RealDiv(x=u, y=y),
        lambda u, x, y: raw.Mul(x=u, y=raw.RealDiv(x=raw.RealDiv(x=raw.Neg(x=x), y=y), y=y)),
    ),
    "SquaredDifference": (
        lambda u, x, y: _half_of_squared_difference(u, x, y),
        lambda u, x, y: _half_of_squared_difference(u, y, x),
    ),
    "Sub": (lambda u, x, y: u, lambda u, x, y: raw.Neg(x=u)),
}
"""u, x, y -> the gradients of x and of y, before what was broadcast is summed up again."""


@lru_cache(KEPT)
def _broadcast_axes(shape: Shape, result: Shape) -> tuple[int, ...]:
    """The axes along which a tensor of one shape was repeated to make the other."""
    padded = (1,) * (len(result) - len(shape)) + shape
    return tuple(axis for axis, (had, has) in enumerate(zip(padded, result, strict=True)) if had != has)


def _summed_to(u: Tensor, result: Shape, shape: Shape) -> Tensor:
    if shape == result:
        return u
    axes = _broadcast_axes(shape, result)
    if axes:
        u = raw.Sum(input=u, axis=numbers(axes), keep_dims=True)
    return u if len(shape) == len(result) else raw.Reshape(tensor=u, shape=numbers(shape))


@lru_cache(KEPT)
def _together(shape: Shape, other: Shape) -> Shape:
    return np.broadcast_shapes(shape, other)


def _broadcast(op: str) -> Rule:
    by_x, by_y = BROADCAST[op]

    def rule(attributes: Any, inputs: Sequence[Tensor], outputs: Any, u: Tensor, skip: Sequence[int]) -> Pulled:
        x, y = inputs
        result, here, there = compat.shape(u), compat.shape(x), compat.shape(y)
        if (here != result or there != result) and _together(here, there) != result:
            return None  # somebody's own gradient passed on another shape than it should
        return [
            None if 0 in skip else _summed_to(by_x(u, x, y), result, here),
            None if 1 in skip else _summed_to(by_y(u, x, y), result, there),
        ]

    return rule


def select(attributes: Any, inputs: Sequence[Tensor], outputs: Any, u: Tensor, skip: Sequence[int]) -> Pulled:
    mask, x, y = inputs
    result = compat.shape(u)
    if result != compat.shape(outputs[0]):
        return None
    return [
        None,
        None if 1 in skip else _summed_to(_where(mask, u), result, compat.shape(x)),
        None if 2 in skip else _summed_to(_where_not(mask, u), result, compat.shape(y)),
    ]


def bias_add(attributes: Any, inputs: Any, outputs: Any, u: Tensor, skip: Sequence[int]) -> Pulled:
    form = setting(attributes, "data_format")
    return [u, None if 1 in skip else raw.BiasAddGrad(out_backprop=u, data_format=form)]


# ---------------------------------------------------------------- products


def _product(multiply: Callable[..., Tensor], turn_a: str, turn_b: str) -> Rule:
    """`a @ b`, each of them as it is or turned around."""

    def rule(attributes: Any, inputs: Sequence[Tensor], outputs: Any, u: Tensor, skip: Sequence[int]) -> Pulled:
        a, b = inputs
        turned_a, turned_b = setting(attributes, turn_a), setting(attributes, turn_b)
        by_a = by_b = None
        if 0 not in skip:
            by_a = multiply(b, u, turned_b, True) if turned_a else multiply(u, b, False, not turned_b)
        if 1 not in skip:
            by_b = multiply(u, a, True, turned_a) if turned_b else multiply(a, u, not turned_a, False)
        return [by_a, by_b]

    return rule


matmul = _product(raw.MatMul, "transpose_a", "transpose_b")
matmul_of_stacks = _product(raw.BatchMatMulV2, "adj_x", "adj_y")


def batch_matmul(attributes: Any, inputs: Sequence[Tensor], outputs: Any, u: Tensor, skip: Sequence[int]) -> Pulled:
    a, b = inputs
    if compat.shape(a)[:-2] != compat.shape(b)[:-2]:
        return None  # one of them was broadcast
    return matmul_of_stacks(attributes, inputs, outputs, u, skip)


def _convolution(by_input: Callable[..., Tensor], by_filter: Callable[..., Tensor], words: Sequence[str]) -> Rule:
    def rule(attributes: Any, inputs: Sequence[Tensor], outputs: Any, u: Tensor, skip: Sequence[int]) -> Pulled:
        x, kernel = inputs
        how = {word: setting(attributes, word) for word in words}
        sizes = [numbers(compat.shape(t)) for t in inputs]
        return [
            None if 0 in skip else by_input(input_sizes=sizes[0], filter=kernel, out_backprop=u, **how),
            None if 1 in skip else by_filter(input=x, filter_sizes=sizes[1], out_backprop=u, **how),
        ]

    return rule


# ---------------------------------------------------------------- shapes and sums


def reshaped(attributes: Any, inputs: Sequence[Tensor], outputs: Any, u: Tensor, skip: Sequence[int]) -> Pulled:
    back = raw.Reshape(tensor=u, shape=numbers(compat.shape(inputs[0])))
    return [back, *[None] * (len(inputs) - 1)]


def transposed(attributes: Any, inputs: Sequence[Tensor], outputs: Any, u: Tensor, skip: Sequence[int]) -> Pulled:
    return [raw.Transpose(x=u, perm=raw.InvertPermutation(x=inputs[1])), None]


MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def sliced(attributes: Any, inputs: Sequence[Tensor], outputs: Any, u: Tensor, skip: Sequence[int]) -> Pulled:
    x, begin, end, strides = inputs
    masks = {word: setting(attributes, word) for word in MASKS}
    shape = numbers(compat.shape(x), begin.dtype)
    return [raw.StridedSliceGrad(shape=shape, begin=begin, end=end, strides=strides, dy=u, **masks), None, None, None]


def summed(attributes: Any, inputs: Sequence[Tensor], outputs: Any, u: Tensor, skip: Sequence[int]) -> Pulled:
    x, axes = inputs
    shape = compat.shape(x)
    if not setting(attributes, "keep_dims"):
        kept = list(shape)
        for axis in axes.numpy().reshape(-1).tolist():
            kept[axis] = 1
        u = raw.Reshape(tensor=u, shape=numbers(tuple(kept)))
    return [raw.BroadcastTo(input=u, shape=numbers(shape)), None]


def averaged(attributes: Any, inputs: Sequence[Tensor], outputs: Any, u: Tensor, skip: Sequence[int]) -> Pulled:
    count = inputs[0]._num_elements() // max(u._num_elements(), 1)
    spread = summed(attributes, inputs, outputs, u, skip)
    return spread and [raw.RealDiv(x=spread[0], y=number(float(count), compat.kind(u))), None]


def softmax(attributes: Any, inputs: Any, outputs: Sequence[Tensor], u: Tensor, skip: Sequence[int]) -> Pulled:
    y = outputs[0]
    common = raw.Sum(input=raw.Mul(x=u, y=y), axis=numbers((-1,)), keep_dims=True)
    return [raw.Mul(x=raw.Sub(x=u, y=common), y=y)]


SETTINGS = ("strides", "padding", "explicit_paddings", "data_format", "dilations")

RULES: dict[str, Rule] = {
    **{op: _by_result(formula) for op, formula in BY_RESULT.items()},
    **{op: _by_input(formula) for op, formula in BY_INPUT.items()},
    **{op: _broadcast(op) for op in BROADCAST},
    "BatchMatMulV2": batch_matmul,
    "BiasAdd": bias_add,
    "Conv2D": _convolution(raw.Conv2DBackpropInput, raw.Conv2DBackpropFilter, (*SETTINGS, "use_cudnn_on_gpu")),
    "DepthwiseConv2dNative": _convolution(
        raw.DepthwiseConv2dNativeBackpropInput, raw.DepthwiseConv2dNativeBackpropFilter, SETTINGS
    ),
    "ExpandDims": reshaped,
    "MatMul": matmul,
    "Mean": averaged,
    "Neg": lambda attributes, inputs, outputs, u, skip: [raw.Neg(x=u)],
    "Reshape": reshaped,
    "SelectV2": select,
    "Softmax": softmax,
    "Squeeze": reshaped,
    "StridedSlice": sliced,
    "Sum": summed,
    "Transpose": transposed,
}
