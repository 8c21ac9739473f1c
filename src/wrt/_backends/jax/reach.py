"""Which elements of x some elements of y can depend on: marks that travel back through the operations of the run.

A rule takes marks, (k, *shape) of booleans, from the results of an operation back to its inputs. Rules say what can depend,
whatever the numbers are, and work in NumPy: nothing is compiled. An operation without a rule is not guessed at. Where
another array tells the places (gathers, scatters, slices that start somewhere) the operation is replayed on the numbers
1, 2, 3, ... of the elements, which then show where each of them went.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from jax.lax import GatherDimensionNumbers

from wrt._backends.jax import compat
from wrt._backends.jax.program import Op, Var
from wrt._core.index import Positions, Shape
from wrt._core.protocol import Marks
from wrt._core.thresholds import BLOCK_BYTES

Labels: TypeAlias = npt.NDArray[np.int64]


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

def joined(marks: Marks, axis: tuple[int, ...], *, keepdims: bool = False) -> Marks:
    """What comes from several places."""
    return np.asarray(np.any(marks, axis=axis, keepdims=keepdims))


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


# ---------------------------------------------------------------- places that another array tells


def labels(shape: Shape) -> Labels:
    """Elements by number; 0 stands for what comes from nowhere."""
    return np.arange(1, int(np.prod(shape)) + 1).reshape(shape)


def sent_back(marks: Marks, came_from: Labels, shape: Shape) -> Marks:
    """Marks of an array of this shape, from those of an array whose elements came from there."""
    found = np.zeros((len(marks), int(np.prod(shape)) + 1), dtype=bool)
    row, element = np.nonzero(marks.reshape(len(marks), -1))
    found[row, came_from.reshape(-1)[element]] = True
    return found[:, 1:].reshape(len(marks), *shape)


def gathered(numbers: Any, shape: Shape, indices: Any, sizes: Sequence[int], mode: Any) -> Labels:
    """The label of each element that a gather takes from an array of this shape; 0 where it takes none."""
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    axes, places, rank = list(numbers.start_index_map), indices.shape[:-1], len(shape)
    fit = np.ones(places, bool)
    at = []
    for axis, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        start = np.zeros(places, np.int64)
        if axis in axes:
            start = indices[..., axes.index(axis)].astype(np.int64)
        elif axis in batching:
            along = [1] * len(places)
            along[batching[axis]] = places[batching[axis]]
            start = np.broadcast_to(np.arange(places[batching[axis]]).reshape(along), places)
        fit &= (start >= 0) & (start <= n - size)
        start = np.clip(start, 0, max(n - size, 0))
        within = [1] * rank
        within[axis] = size
        at.append(start.reshape(*places, *[1] * rank) + np.arange(size).reshape(within))
    found = labels(shape)[tuple(at)]
    if mode.name == "FILL_OR_DROP":
        found = np.where(fit.reshape(*places, *[1] * rank), found, 0)
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    found = np.squeeze(found, tuple(len(places) + axis for axis in gone))
    return np.moveaxis(found, range(len(places), found.ndim), numbers.offset_dims)


@rule("gather")
def _gather(op: Marked) -> list[Marks | None]:
    params, shape = op.params, op.shapes[0]
    came_from = gathered(params["dimension_numbers"], shape, op.number(1), params["slice_sizes"], params["mode"])
    return op.only_first(sent_back(op.marks, came_from, shape))


@rule("scatter-add", "scatter")
def _scatter(op: Marked) -> list[Marks | None]:
    """What is added to stays where it is; what is overwritten is gone."""
    written = _written(op)
    kept = op.marks
    if op.name == "scatter":
        kept = kept & ~np.isin(labels(op.shapes[0]), written)
    updates = op.marks.reshape(len(op.marks), -1)
    updates = np.pad(updates, ((0, 0), (1, 0)))[:, written.reshape(-1)].reshape(len(updates), *op.shapes[2])
    return [kept, None, updates]


def _written(op: Marked) -> Labels:
    """For each element of the update the element that it is written to."""
    numbers, shape = op.params["dimension_numbers"], op.shapes[0]
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = iter(op.shapes[2][k] for k in numbers.update_window_dims)
    back = GatherDimensionNumbers(
        offset_dims=numbers.update_window_dims,
        collapsed_slice_dims=numbers.inserted_window_dims,
        start_index_map=numbers.scatter_dims_to_operand_dims,
        operand_batching_dims=numbers.operand_batching_dims,
        start_indices_batching_dims=numbers.scatter_indices_batching_dims,
    )
    sizes = tuple(1 if axis in gone else next(window) for axis in range(len(shape)))
    return gathered(back, shape, op.number(1), sizes, op.params["mode"])


def _part(op: Marked, sizes: Sequence[int], first: int) -> tuple[slice, ...]:
    """The slice of the first input that starts where the inputs from `first` on say; beyond the edge JAX moves it back."""
    starts = [max(0, min(int(op.number(first + k)), n - size)) for k, (n, size) in enumerate(zip(op.shapes[0], sizes))]
    return (slice(None), *(slice(start, start + size) for start, size in zip(starts, sizes, strict=True)))


@rule("dynamic_slice")
def _dynamic_slice(op: Marked) -> list[Marks | None]:
    marks = np.zeros((len(op.marks), *op.shapes[0]), dtype=bool)
    marks[_part(op, op.params["slice_sizes"], 1)] = op.marks
    return op.only_first(marks)


@rule("dynamic_update_slice")
def _dynamic_update_slice(op: Marked) -> list[Marks | None]:
    if any(op.wanted[2:]):
        raise NoRule(op.name)
    part = _part(op, op.shapes[1], 2)
    kept = op.marks.copy()
    kept[part] = False
    return [kept, op.marks[part], *(None for _ in op.shapes[2:])]


CUSTOM = frozenset({"custom_jvp_call", "custom_vjp_call"})
"""Functions with a derivative of the user's own: it is taken to need no more than the function does."""


class Step(NamedTuple):
    """An operation of the run, or an equation of a jaxpr."""

    name: str
    params: dict[str, Any]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    value: Callable[[Any], Any]


def unknown(var: Any) -> Any:
    raise NoRule("numbers inside of a function")


def reach(ops: Iterable[Op], y: Var, x: Var, rows: Positions, value: Callable[[Var], Any]) -> Marks | None:
    """(rows, x.size): where these elements of y can depend on x; None where an operation on the way has no rule.

    `value` tells the numbers of the run: which elements a gather takes.
    """
    marks = np.zeros((len(rows), int(np.prod(y.aval.shape))), dtype=bool)
    marks[np.arange(len(rows)), rows] = True
    steps = [Step(op.name, op.params, op.inputs, op.outputs, value) for op in ops]
    try:
        found = _back(steps, {y: marks.reshape(len(rows), *y.aval.shape)}, {x}).get(x)
    except NoRule:
        return None
    return np.zeros((len(rows), int(np.prod(x.aval.shape))), dtype=bool) if found is None else found.reshape(len(rows), -1)


def knows_all(ops: Iterable[Op]) -> bool:
    """Whether every operation is one of JAX's own, with a rule here: no derivative of the user's own."""
    return all(op.name in RULES for op in ops)


def _back(steps: list[Step], marked: dict[Any, Marks], ends: set[Any]) -> dict[Any, Marks]:
    """Marks of everything on the way, once all that reads it has been seen."""
    asked = ends | {v for step in steps for v in step.outputs}
    for step in reversed(steps):
        results = [marked.pop(v, None) for v in step.outputs]
        if all(marks is None for marks in results):
            continue
        wanted = [not isinstance(v, compat.Literal) and v in asked for v in step.inputs]
        for var, marks in zip(step.inputs, _one_back(step, wanted, results), strict=True):
            if marks is not None and not isinstance(var, compat.Literal) and var in asked:
                before = marked.get(var)
                marked[var] = marks if before is None else before | marks
    return marked


def _one_back(step: Step, wanted: list[bool], results: list[Marks | None]) -> list[Marks | None]:
    count = next(len(marks) for marks in results if marks is not None)
    if step.name in CUSTOM or step.name in compat.INLINED:
        return _inside(step, wanted, results)
    shapes = [tuple(v.aval.shape) for v in step.inputs]
    if step.name not in RULES or count * max((int(np.prod(shape)) for shape in shapes), default=0) > BLOCK_BYTES:
        raise NoRule(step.name)
    number = lambda k: np.asarray(step.value(step.inputs[k]))
    return RULES[step.name](Marked(step.name, step.params, shapes, wanted, results, number))


def _inside(step: Step, wanted: list[bool], results: list[Marks | None]) -> list[Marks | None]:
    """Through the operations that a call is made of."""
    jaxpr, _ = compat.sub_jaxpr(step.params)
    inner = [Step(e.primitive.name, e.params, tuple(e.invars), tuple(e.outvars), unknown) for e in jaxpr.eqns]
    marked: dict[Any, Marks] = {}
    for var, marks in zip(jaxpr.outvars, results, strict=True):
        if marks is not None and not isinstance(var, compat.Literal):
            marked[var] = marked[var] | marks if var in marked else marks
    ends = {v for v, asked in zip(jaxpr.invars, wanted, strict=True) if asked}
    found = _back(inner, marked, ends)
    return [found.get(v) for v in jaxpr.invars]
