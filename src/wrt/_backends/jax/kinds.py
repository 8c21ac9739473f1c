"""What each kind of operation does to marks: which elements of its inputs the marked elements of its results depend on.

A rule takes marks, (k, *shape) of booleans, from the results of an operation back to its inputs. Rules say what can depend,
whatever the numbers are, and work in NumPy: nothing is compiled. An operation without a rule is not guessed at.
Operations that are `LINEAR` carry cotangents as they carry marks: where marks are joined, numbers are added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from wrt._core.index import Shape

Marks: TypeAlias = npt.NDArray[Any]


class NoRule(Exception):
    """Nothing is known of an operation."""


@dataclass(slots=True)
class Marked:
    """An operation whose results are marked; `wanted` are the inputs whose marks somebody asks for."""

    name: str
    params: dict[str, Any]
    shapes: Sequence[Shape]
    wanted: Sequence[bool]
    results: Sequence[Marks | None]
    number: Callable[[int], Any]
    """What an input was in the run; raises NoRule inside of a function that is only known as a whole."""

    @property
    def marks(self) -> Marks:
        """Of the only result."""
        (marks,) = self.results
        assert marks is not None
        return marks

    def only_first(self, marks: Marks) -> list[Marks | None]:
        """What the first input gets, where the others are not asked for."""
        if any(self.wanted[1:]):
            raise NoRule(self.name)
        return [marks, *(None for _ in self.shapes[1:])]


Rule: TypeAlias = Callable[[Marked], list[Marks | None]]
RULES: dict[str, Rule] = {}

ELEMENTWISE = (
    "abs acos acosh add add_any asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp complex conj "
    "convert_element_type copy copy_p cos cosh digamma div erf erf_inv erfc exp exp2 expm1 floor imag integer_pow lgamma "
    "log log1p logistic max min mul neg pow real reduce_precision rem round rsqrt select_n sign sin sinh sqrt square "
    "sub tan tanh"
).split()

LINEAR = frozenset(
    "broadcast_in_dim concatenate copy copy_p expand_dims pad reduce_sum reshape rev slice split squeeze stack transpose".split()
)
"""Whose rule is the transpose of the operation."""


def joined(marks: Marks, axis: tuple[int, ...], *, keepdims: bool = False) -> Marks:
    """What comes from several places: one mark, or the sum of numbers."""
    return np.asarray((np.any if marks.dtype == bool else np.sum)(marks, axis=axis, keepdims=keepdims))


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"two rules for {name}")
            RULES[name] = function
        return function

    return register


@rule(*ELEMENTWISE)
def _elementwise(op: Marked) -> list[Marks | None]:
    return [folded(op.marks, shape) if wanted else None for shape, wanted in zip(op.shapes, op.wanted, strict=True)]


def folded(marks: Marks, shape: Shape) -> Marks:
    """Marks of an input that was repeated to the shape of the result: a single number, or along axes of length 1."""
    if marks.shape[1:] == shape:
        return marks
    if not shape:
        return joined(marks.reshape(len(marks), -1), (1,))
    if len(shape) != marks.ndim - 1:
        raise NoRule("shapes differ")
    return joined(marks, tuple(1 + k for k, n in enumerate(shape) if n == 1), keepdims=True)


@rule("broadcast_in_dim")
def _broadcast(op: Marked) -> list[Marks | None]:
    shape, kept = op.shapes[0], op.params["broadcast_dimensions"]
    repeated = tuple(1 + k for k in range(op.marks.ndim - 1) if k not in kept)
    marks = joined(op.marks, repeated).reshape(len(op.marks), *(op.marks.shape[1 + k] for k in kept))
    single = tuple(1 + k for k, n in enumerate(shape) if n == 1)
    return op.only_first(joined(marks, single, keepdims=True))


@rule("reshape", "squeeze", "expand_dims")
def _reshape(op: Marked) -> list[Marks | None]:
    if op.params.get("dimensions") is not None and op.name == "reshape":
        raise NoRule(op.name)
    return op.only_first(op.marks.reshape(len(op.marks), *op.shapes[0]))


@rule("transpose")
def _transpose(op: Marked) -> list[Marks | None]:
    back = np.argsort(op.params["permutation"])
    return op.only_first(op.marks.transpose(0, *(1 + back)))


@rule("rev")
def _rev(op: Marked) -> list[Marks | None]:
    return op.only_first(np.flip(op.marks, tuple(1 + k for k in op.params["dimensions"])))


@rule("slice")
def _slice(op: Marked) -> list[Marks | None]:
    starts, stops = op.params["start_indices"], op.params["limit_indices"]
    strides = op.params["strides"] or (1,) * len(starts)
    marks = np.zeros((len(op.marks), *op.shapes[0]), op.marks.dtype)
    marks[(slice(None), *map(slice, starts, stops, strides))] = op.marks
    return op.only_first(marks)


@rule("pad")
def _pad(op: Marked) -> list[Marks | None]:
    """Negative padding cuts off; what lies between and around comes from the number that fills."""
    marks = op.marks
    for axis, ((low, _, between), length) in enumerate(zip(op.params["padding_config"], op.shapes[0], strict=True)):
        at = low + (between + 1) * np.arange(length)
        inside = (at >= 0) & (at < marks.shape[1 + axis])
        taken = np.take(marks, np.where(inside, at, 0), axis=1 + axis)
        marks = np.where(inside.reshape((-1,) + (1,) * (taken.ndim - axis - 2)), taken, taken.dtype.type(0))
    return op.only_first(marks)


@rule("concatenate")
def _concatenate(op: Marked) -> list[Marks | None]:
    axis = op.params["dimension"]
    ends = np.cumsum([shape[axis] for shape in op.shapes])[:-1]
    return list(np.split(op.marks, ends, axis=1 + axis))


@rule("stack")
def _stack(op: Marked) -> list[Marks | None]:
    return list(np.moveaxis(op.marks, 1 + op.params["axis"], 0))


@rule("split")
def _split(op: Marked) -> list[Marks | None]:
    axis, sizes = op.params["axis"], op.params["sizes"]
    known = next(marks for marks in op.results if marks is not None)
    count, rest = len(known), op.shapes[0]
    blank = [np.zeros((count, *rest[:axis], int(size), *rest[axis + 1 :]), known.dtype) for size in sizes]
    found = [none if marks is None else marks for marks, none in zip(op.results, blank, strict=True)]
    return op.only_first(np.concatenate(found, axis=1 + axis))


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod")
def _reduce(op: Marked) -> list[Marks | None]:
    marks = np.expand_dims(op.marks, [1 + axis for axis in op.params["axes"]])
    return op.only_first(np.broadcast_to(marks, (len(marks), *op.shapes[0])))


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(op: Marked) -> list[Marks | None]:
    axis = 1 + op.params["axis"]
    turned = () if op.params["reverse"] else (axis,)
    return op.only_first(np.flip(np.logical_or.accumulate(np.flip(op.marks, turned), axis), turned))


@rule("dot_general")
def _dot(op: Marked) -> list[Marks | None]:
    (of_left, of_right), (left_batch, right_batch) = op.params["dimension_numbers"]
    batch = len(left_batch)
    left = [k for k in range(len(op.shapes[0])) if k not in (*of_left, *left_batch)]
    right = [k for k in range(len(op.shapes[1])) if k not in (*of_right, *right_batch)]
    middle = 1 + batch + len(left)
    per_left: Marks = np.asarray(np.any(op.marks, axis=tuple(range(middle, op.marks.ndim))))
    per_right: Marks = np.asarray(np.any(op.marks, axis=tuple(range(1 + batch, middle))))
    sides = ((per_left, (*left_batch, *left)), (per_right, (*right_batch, *right)))
    return [
        _spread(marks, axes, shape) if wanted else None
        for (marks, axes), shape, wanted in zip(sides, op.shapes, op.wanted, strict=True)
    ]


def _spread(marks: Marks, axes: tuple[int, ...], shape: Shape) -> Marks:
    """Marks over some axes of an input, the same along all of its other axes."""
    order = np.argsort(axes)
    along = marks.transpose(0, *(1 + order)) if len(axes) else marks
    whole = [n if k in axes else 1 for k, n in enumerate(shape)]
    return np.broadcast_to(along.reshape(len(marks), *whole), (len(marks), *shape))


@rule("conv_general_dilated")
def _convolution(op: Marked) -> list[Marks | None]:
    params, numbers = op.params, op.params["dimension_numbers"]
    if params["batch_group_count"] != 1:
        raise NoRule(op.name)
    shape, kernel = op.shapes[0], op.shapes[1]
    marks = op.marks.transpose(0, *(1 + k for k in numbers.out_spec))  # (k, batch, channel, *space)
    groups, channels = params["feature_group_count"], shape[numbers.lhs_spec[1]]
    grouped = marks.reshape(*marks.shape[:2], groups, -1, *marks.shape[3:]).any(3)
    marks = np.repeat(grouped, channels // groups, axis=2)
    for axis, (of_shape, of_kernel) in enumerate(zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:], strict=True)):
        window = _window(params, axis, marks.shape[3 + axis], shape[of_shape], kernel[of_kernel])
        seen = np.moveaxis(marks, 3 + axis, -1).astype(np.float32) @ window
        marks = np.moveaxis(seen > 0, -1, 3 + axis)
    return op.only_first(marks.transpose(0, *(1 + np.argsort(numbers.lhs_spec))))


def _window(params: dict[str, Any], axis: int, made: int, given: int, size: int) -> npt.NDArray[np.float32]:
    """(results, inputs) along one axis: which of them a window touches."""
    stretched = params["lhs_dilation"][axis]
    at = np.arange(made)[:, None] * params["window_strides"][axis] - params["padding"][axis][0]
    at = at + np.arange(size)[None, :] * params["rhs_dilation"][axis]
    inside = (at >= 0) & (at <= (given - 1) * stretched) & (at % stretched == 0)
    found = np.zeros((made, given), dtype=np.float32)
    row, tap = np.nonzero(inside)
    found[row, at[row, tap] // stretched] = 1
    return found
