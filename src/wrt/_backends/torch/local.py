"""Operations that are local: which patch of the input a patch of the output is made from, and how it is pulled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F

from wrt._backends.torch.nodes import Spot, signed
from wrt._backends.torch.turned import turned
from wrt._backends.torch.walk import Sources
from wrt._core.index import Shape

Box = tuple[tuple[int, int], ...]  # start and stop along each axis
Tensor: TypeAlias = torch.Tensor
Pull = Callable[[Any, Tensor], Tensor]
"""A node and cotangents of a patch of its output, (count, *patch) -> those of a patch of one input. Under no_grad."""

CONVOLUTION = "ConvolutionBackward0"
MAX_POOL = "MaxPool2DWithIndicesBackward0"
WINDOWS = (CONVOLUTION, MAX_POOL)
SELECT = "SelectBackward0"
ELEMENTWISE = frozenset(
    f"{name}Backward0"
    for name in (
        "Tanh Relu Sigmoid Gelu Silu Softplus Elu LeakyRelu Hardtanh Hardswish Mish Exp Log Sin Cos Sqrt Abs Neg "
        "Reciprocal Clone Erf Log1P Expm1 Add Sub Mul Div Pow"
    ).split()
)
BATCH_NORM = "NativeBatchNormBackward0"
"""With the statistics of its training it acts on each number by itself, by a factor for its channel."""
EACH_BY_ITSELF = ELEMENTWISE | {BATCH_NORM}
BY_RESULT: dict[str, Any] = {
    "TanhBackward0": torch.ops.aten.tanh_backward.default,
    "SigmoidBackward0": torch.ops.aten.sigmoid_backward.default,
    "ReluBackward0": lambda g, result: torch.ops.aten.threshold_backward.default(g, result.expand_as(g), 0),
}
"""Backwards that need only the result, and so only a patch of it; the others are asked for the slope of everything."""
SAME_NUMBERS = ("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0", "UnsqueezeBackward0", "SqueezeBackward")
FORWARD: dict[int, Any] = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
TRANSPOSED: dict[int, Any] = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}

FEW = 2**16
"""Numbers of all windows together: both ways of a convolution took as long there, each measured in a loop of itself."""
PLAIN = frozenset({torch.float32, torch.float64})


class Operation(NamedTuple):
    """What made one tensor of the run, as plain data: two runs that say the same of it share their patches."""

    name: str
    shape: Shape
    sources: Sources
    weight: Shape = ()
    """The shape of a convolution's weight; of a pool, two ones and its window."""
    windows: tuple[Any, ...] = ((), (), ())
    """Stride, padding and dilation along each axis."""
    groups: int = 1
    selected: tuple[int, int] = (0, 0)
    """Axis and index of a select, as torch keeps them: negative ones as huge unsigned numbers."""

    def work(self, box: Box) -> int:
        """Multiplications of one pull through a patch."""
        return math.prod([b - a for a, b in box]) * math.prod(self.weight[1:])

    @property
    def whole_work(self) -> int:
        return math.prod(self.shape) * math.prod(self.weight[1:])

    def chosen(self, shape: Shape) -> tuple[int, int]:
        """Axis and index of a select from a tensor of this shape."""
        axis, index = map(signed, self.selected)
        axis %= len(shape)
        return axis, index % shape[axis]


def shape_of(spot: Spot) -> Shape:
    variable = getattr(spot[0], "variable", None)
    return tuple((spot[0]._input_metadata[spot[1]] if variable is None else variable).shape)


def may_be_local(node: Any) -> bool:
    """Whether there are rules for operations of this name."""
    name = type(node).__name__
    return name in EACH_BY_ITSELF or name in (*WINDOWS, SELECT) or name.startswith(SAME_NUMBERS)


def read(node: Any, shape: Shape, sources: Sources, shapes: list[Shape]) -> Operation | None:
    """The operation that made a tensor of this shape; None where the rules below do not hold for it.

    `shapes` are those of all tensors, by their numbers.
    """
    name = type(node).__name__
    if name == CONVOLUTION:
        if node._saved_transposed or len(shape) not in FORWARD or [k for k, _ in sources] != [0]:
            return None
        windows = (node._saved_stride, node._saved_padding, node._saved_dilation)
        return Operation(name, shape, sources, tuple(node._saved_weight.shape), windows, node._saved_groups)
    if name == MAX_POOL:
        kernel = node._saved_kernel_size * (2 // len(node._saved_kernel_size))
        stride, padding, dilation = (
            tuple(one) * (2 // len(one)) if one else kernel
            for one in (node._saved_stride, node._saved_padding, node._saved_dilation)
        )
        return Operation(name, shape, sources, (1, 1, *kernel), (stride, padding, dilation)) if len(shape) == 4 else None
    if name == SELECT:
        return Operation(name, shape, sources, selected=(node._saved_dim, node._saved_index))
    if name == BATCH_NORM and (node._saved_training or [k for k, _ in sources] != [0]):
        return None  # in training, every number of a batch depends on all of them
    if name in EACH_BY_ITSELF:
        fits = all(shapes[source] == shape for _, source in sources)
    else:
        fits = all(_long(shapes[source]) == _long(shape) for _, source in sources)
    return Operation(name, shape, sources) if fits else None


def back(operation: Operation, before: Shape, box: Box) -> Box:
    """What of an input of this shape a patch of the output is computed from."""
    if operation.name in WINDOWS:
        spatial = [
            (max(0, a * s - p), min(n, (b - 1) * s - p + (k - 1) * d + 1))
            for (a, b), n, s, p, d, k in zip(
                box[2:], before[2:], *operation.windows, operation.weight[2:], strict=True
            )
        ]
        return (box[0], box[1] if operation.name == MAX_POOL else (0, before[1]), *spatial)
    if operation.name == SELECT:
        axis, index = operation.chosen(before)
        return (*box[:axis], (index, index + 1), *box[axis:])
    return box if operation.name in EACH_BY_ITSELF else _moved(box, operation.shape, before)


def forth(operation: Operation, before: Shape, box: Box) -> Box:
    """What of the output a patch of an input can change."""
    if operation.name in WINDOWS:
        spatial = [
            (max(0, -(((k - 1) * d - a - p) // s)), min(n, (b - 1 + p) // s + 1))
            for (a, b), n, s, p, d, k in zip(
                box[2:], operation.shape[2:], *operation.windows, operation.weight[2:], strict=True
            )
        ]
        return (box[0], box[1] if operation.name == MAX_POOL else (0, operation.shape[1]), *spatial)
    if operation.name == SELECT:
        axis, index = operation.chosen(before)
        rest = (*box[:axis], *box[axis + 1 :])
        return rest if box[axis][0] <= index < box[axis][1] else tuple((0, 0) for _ in rest)
    return box if operation.name in EACH_BY_ITSELF else _moved(box, before, operation.shape)


def puller(operation: Operation, k: int, before: Shape, box: Box, into: Box) -> Pull:
    """How cotangents of a patch of the output become those of a patch of the k-th input."""
    if operation.name == CONVOLUTION:
        steady = all(step == 1 for step in operation.windows[0])
        return _convolution(operation, box, into) if steady else _strided_convolution(operation, box, into)
    patch = _within(box, operation.shape)
    if operation.name == MAX_POOL:
        return _max_pool(before, patch, box, into)
    if operation.name in BY_RESULT:
        pulled, fitted = BY_RESULT[operation.name], _fitting(box, into)
        return lambda node, g: fitted(pulled(g, _part(node._saved_result, patch)))
    if operation.name in EACH_BY_ITSELF:
        fitted = _fitting(box, into)
        return _batch_norm(box, fitted) if operation.name == BATCH_NORM else _elementwise(operation.shape, k, patch, fitted)
    moved = back(operation, before, box)
    sizes, fitted = _sizes(moved), _fitting(moved, into)
    return lambda node, g: fitted(g.reshape(len(g), *sizes))


def _elementwise(shape: Shape, k: int, patch: Patch, fitted: Callable[[Tensor], Tensor]) -> Pull:
    def pull(node: Any, g: Tensor) -> Tensor:
        slope = node(torch.ones(shape, dtype=g.dtype, device=g.device))
        slope = slope[k] if isinstance(slope, tuple) else slope
        return fitted(g * _part(slope, patch))

    return pull


def _batch_norm(box: Box, fitted: Callable[[Tensor], Tensor]) -> Pull:
    channels, rest = slice(*box[1]), (1,) * (len(box) - 2)

    def pull(node: Any, g: Tensor) -> Tensor:
        factor = (node._saved_running_var[channels] + node._saved_eps).rsqrt()
        weight = node._saved_weight
        factor = factor if weight is None else factor * weight[channels]
        return fitted(g * factor.view(-1, *rest))

    return pull


def _max_pool(before: Shape, patch: Patch, box: Box, into: Box) -> Pull:
    """Each number goes back to the place it was taken from, one place for all that lie outside of the patch."""
    (top, bottom), (left, right) = into[2:]
    sizes = (bottom - top, right - left)
    fitted = _fitting((*box[:2], *into[2:]), into)

    def pull(node: Any, g: Tensor) -> Tensor:
        taken = _part(node._saved_result1, patch)
        row, column = taken // before[3] - top, taken % before[3] - left
        inside = (row >= 0) & (row < sizes[0]) & (column >= 0) & (column < sizes[1])
        place = torch.where(inside, row * sizes[1] + column, sizes[0] * sizes[1]).flatten(2)
        found = torch.zeros(*g.shape[:3], sizes[0] * sizes[1] + 1, dtype=g.dtype, device=g.device)
        found.scatter_add_(3, place.expand(len(g), *place.shape), g.flatten(3))
        return fitted(found[..., :-1].view(*g.shape[:3], *sizes))

    return pull


def _convolution(operation: Operation, box: Box, into: Box) -> Pull:
    """A convolution with the kernel turned round, of just what the patch needs: quicker than a transposed one.

    It pads both ends of an axis alike, by the more that one of them needs, and the rest is left out afterwards.
    """
    _, padding, dilation = operation.windows
    cut: list[slice] = [slice(None), slice(None)]
    around: list[int] = []
    kept: list[slice] = [slice(None), slice(None), slice(into[1][0], into[1][1])]
    for (a, b), (c, e), p, d, size in zip(box[2:], into[2:], padding, dilation, operation.weight[2:], strict=True):
        low, high = a - (c + p - (size - 1) * d), (e + p) - b  # zeros that are missing on each side; too much if negative
        cut.append(slice(max(0, -low), b - a - max(0, -high)))
        low, high = max(0, low), max(0, high)
        around.append(max(low, high))
        kept.append(slice(around[-1] - low, around[-1] - low + e - c))
    groups = operation.groups
    inner = _within_sizes(cut, (0, 0, *(b - a for a, b in box[2:])))
    channels, whole = _channels(operation, box)
    made = _made(cut, around, operation)
    wanted = _within_sizes(kept, (0, 0, operation.weight[1] * groups, *made))
    convolve = _convolve(operation, around, made)
    fitted = _fitting((box[0], *into[1:]), into)  # samples

    def pull(node: Any, g: Tensor) -> Tensor:
        weight = turned(_part(node._saved_weight, channels), groups)
        piece = convolve(_part(whole(g.flatten(0, 1)), inner), weight)  # of (count * samples, channels, ...)
        return fitted(_part(piece.view(g.shape[0], -1, *piece.shape[1:]), wanted))

    return pull


def _convolve(operation: Operation, around: list[int], made: list[int]) -> Callable[[Tensor, Tensor], Tensor]:
    """A convolution in steps of one; of a few windows on a CPU, a plain product is done before oneDNN has begun."""
    forward, apart, groups = FORWARD[len(operation.shape)], tuple(operation.windows[2]), operation.groups
    kernel = operation.weight[2:]
    plain = len(kernel) == 2 and apart == (1, 1) and groups == 1
    each = math.prod(kernel) * math.prod(made)  # numbers of all windows of one channel

    def convolve(flat: Tensor, weight: Tensor) -> Tensor:
        if plain and flat.is_cpu and flat.dtype in PLAIN and flat.shape[0] * flat.shape[1] * each <= FEW:
            return torch.ops.aten.thnn_conv2d.default(flat, weight, kernel, None, apart, around)
        found: Tensor = forward(flat, weight, None, 1, around, apart, groups)
        return found

    return convolve


def _made(cut: list[slice], around: list[int], operation: Operation) -> list[int]:
    """How long the axes of a convolution of a patch are that was cut and padded."""
    sizes = zip(cut[2:], around, operation.windows[2], operation.weight[2:], strict=True)
    return [some.stop - some.start + 2 * pad - d * (size - 1) for some, pad, d, size in sizes]


def _channels(operation: Operation, box: Box) -> tuple[Patch, Callable[[Tensor], Tensor]]:
    """The weights of the channels of a patch; in groups all of them, and the patch with zeros for the other channels."""
    if operation.groups == 1:
        return _within_sizes((slice(*box[1]),), operation.weight[:1]), _as_it_is
    (start, stop), there = box[1], operation.weight[0]
    around = [*(0, 0) * (len(box) - 2), start, there - stop]
    return None, (lambda flat: F.pad(flat, around)) if any(around) else _as_it_is


def _strided_convolution(operation: Operation, box: Box, into: Box) -> Pull:
    stride, padding, dilation = operation.windows
    channels, whole = _channels(operation, box)
    reached = [
        (a * s - p, (b - 1) * s - p + d * (k - 1) + 1)
        for (a, b), s, p, d, k in zip(box[2:], stride, padding, dilation, operation.weight[2:], strict=True)
    ]
    transposed, apart, steps = TRANSPOSED[len(box)], tuple(dilation), tuple(stride)
    groups = operation.groups
    fitted = _fitting((box[0], (0, operation.weight[1] * groups), *reached), into)

    def pull(node: Any, g: Tensor) -> Tensor:
        weight = _part(node._saved_weight, channels)
        piece = transposed(whole(g.flatten(0, 1)), weight, stride=steps, dilation=apart, groups=groups)
        return fitted(piece.view(g.shape[0], -1, *piece.shape[1:]))

    return pull


def _fitting(box: Box, into: Box) -> Callable[[Tensor], Tensor]:
    """What of a patch lies inside another one; zeros where that is larger."""
    if box == into:
        return _as_it_is
    around: list[int] = []
    for (start, stop), (a, b) in zip(box, into, strict=True):
        around = [start - a, b - stop, *around]
    return lambda piece: F.pad(piece, around)


def _as_it_is(piece: Tensor) -> Tensor:
    return piece


Patch = tuple[slice, ...] | None
"""An index, None where it would select everything."""


def _within(box: Box, shape: Shape) -> Patch:
    return _within_sizes([slice(a, b) for a, b in box], shape)


def _within_sizes(index: list[slice] | tuple[slice, ...], sizes: Shape) -> Patch:
    """The index, or None where it is all of axes of these sizes."""
    for one, n in zip(index, sizes, strict=True):
        if one.start or one.stop not in (None, n):
            return tuple(index)
    return None


def _part(tensor: Tensor, patch: Patch) -> Tensor:
    return tensor if patch is None else tensor[patch]


def _sizes(box: Box) -> Shape:
    return tuple([b - a for a, b in box])


def _moved(box: Box, before: Shape, after: Shape) -> Box:
    """The same patch where axes of one are elsewhere."""
    known = iter([each for each, n in zip(box, before, strict=True) if n != 1])
    return tuple((0, 1) if n == 1 else next(known) for n in after)


def _long(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)
