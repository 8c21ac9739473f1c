"""How tangents pass a node: (k, *input.shape) for each input, None for one that does not move -> (k, *output.shape)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F

from wrt._backends.torch.nodes import Node, NoRule, axis, signed
from wrt._backends.torch.rules.elementwise import ELEMENTWISE
from wrt._backends.torch.rules.families import One, Pull

Tensor: TypeAlias = torch.Tensor
Shape: TypeAlias = tuple[int, ...]
Tangents: TypeAlias = Sequence[Tensor | None]
Rule: TypeAlias = Callable[[Node, Tangents, Shape], Tensor]

SAME = """
    AliasBackward0 CloneBackward0 ReshapeAliasBackward0 SqueezeBackward0 SqueezeBackward1 SqueezeBackward2
    SqueezeBackward4 UnsafeViewBackward0 UnsqueezeBackward0 ViewBackward0
"""
"""The same numbers in the same order."""

DIAGONAL = {name: rule.pull for name, rule in ELEMENTWISE.items() if isinstance(rule, One)}
"""Each number by itself: the derivative is diagonal, so that what pulls a gradient pushes a tangent just as well."""


def _same(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    t = only(tangents)
    return t.reshape(t.shape[0], *shape)


def _diagonal(pull: Pull) -> Rule:
    return lambda node, tangents, shape: pull(node, only(tangents), False)


def only(tangents: Tangents) -> Tensor:
    """The tangent of the first input; the others must not move."""
    first = tangents[0]
    if first is None or any(t is not None for t in tangents[1:]):
        raise NoRule("an input moves that is mostly a constant")
    return first


def stretched(t: Tensor, shape: Shape) -> Tensor:
    """A batch of tensors broadcast to a shape of the same rank or a higher one, as a view."""
    if t.shape[1:] == shape:
        return t
    missing = len(shape) - (t.dim() - 1)
    return t.reshape(t.shape[0], *[1] * missing, *t.shape[1:]).expand(t.shape[0], *shape)


def summed(shape: Shape, *terms: Tensor | None) -> Tensor:
    """Terms that are there, each broadcast to the shape."""
    there = [stretched(t, shape) for t in terms if t is not None]
    if not there:
        raise NoRule("nothing moves")
    total = there[0]
    for t in there[1:]:
        total = total + t
    return total


def scaled(t: Tensor | None, factor: float) -> Tensor | None:
    return t if t is None or factor == 1 else t * factor


def times(t: Tensor, factor: Tensor | None, shape: Shape) -> Tensor:
    """A batch times one tensor, which broadcasts against each of its members as it did in the run."""
    if factor is None:
        raise NoRule("a factor was not saved")
    return (stretched(t, shape) if factor.dim() >= t.dim() else t) * factor


def _add(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    return summed(shape, tangents[0], scaled(tangents[1], node._saved_alpha))


def _subtract(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    return summed(shape, tangents[0], scaled(tangents[1], -node._saved_alpha))


def _reversed(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    return only(tangents) * -node._saved_alpha


def _multiply(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    a, b = tangents
    return summed(
        shape,
        None if a is None else times(a, node._saved_other, shape),
        None if b is None else times(b, node._saved_self, shape),
    )


def _divide(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    a, b = tangents
    divisor = node._saved_other
    return summed(
        shape,
        None if a is None else stretched(a, shape) / divisor,  # an integer has no reciprocal of the right type
        None if b is None else times(b, -node._saved_self / divisor / divisor, shape),
    )


def matrix(a: Tensor | None, b: Tensor | None) -> Tensor:
    """A product of which one factor moves: a batch of vectors, or of matrices, with a matrix that was saved."""
    if a is None or b is None:
        raise NoRule("a factor was not saved")
    return a @ b


def _mm(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    a, b = tangents
    moved = None if a is None else matrix(a, node._saved_mat2), None if b is None else matrix(node._saved_self, b)
    return summed(shape, *moved)


def _mv(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    a, b = tangents
    turned = None if b is None else b @ node._saved_self.mT  # (k, m) = (k, n) @ (n, m)
    return summed(shape, None if a is None else a @ node._saved_vec, turned)


def _addmm(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    bias, a, b = tangents
    alpha = node._saved_alpha
    first = None if a is None else scaled(matrix(a, node._saved_mat2), alpha)
    second = None if b is None else scaled(matrix(node._saved_mat1, b), alpha)
    return summed(shape, scaled(bias, node._saved_beta), first, second)


def _convolve(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    """All tangents lie in the axis of the samples: one convolution."""
    t = only(tangents)
    how = (node._saved_stride, node._saved_padding, node._saved_dilation, node._saved_transposed)
    folded = torch.ops.aten.convolution.default(
        t.flatten(0, 1), node._saved_weight, None, *how, node._saved_output_padding, node._saved_groups
    )
    return folded.unflatten(0, (t.shape[0], shape[0]))


def _transpose(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    t, rank = only(tangents), len(shape)
    return t.transpose(axis(node._saved_dim0, rank), axis(node._saved_dim1, rank)) if rank else t


def _turn(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    t = only(tangents)
    return t.transpose(1, -1) if shape else t


def _permute(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    return only(tangents).permute(0, *(axis(dim, len(shape)) for dim in node._saved_dims))


def _select(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    t, index = only(tangents), node._saved_index
    return t.select(axis(node._saved_dim, t.dim() - 1), signed(index))


def _slice(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    t = only(tangents)
    along = axis(node._saved_dim, t.dim() - 1)
    start = signed(node._saved_start or 0)
    start = max(start + t.shape[along], 0) if start < 0 else start
    count, step = shape[along - 1], node._saved_step
    return t[(slice(None),) * along + (slice(start, start + (count - 1) * step + 1 if count else start, step),)]


def _expand(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    return stretched(only(tangents), shape)


def _sum(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    t = only(tangents)
    return t.reshape(t.shape[0], -1).sum(1).reshape(t.shape[0], *shape)


def _sum_along(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    t = only(tangents)
    if not node._saved_dim or t.dim() == 1:
        return _sum(node, tangents, shape)
    return t.sum([axis(dim, t.dim() - 1) for dim in node._saved_dim]).reshape(t.shape[0], *shape)


def _mean(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    return _sum(node, tangents, shape) / only(tangents)[0].numel()


def _mean_along(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    total, count = _sum_along(node, tangents, shape), only(tangents)[0].numel()
    return total * (total[0].numel() / count)


def _stack(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    moving = next((t for t in tangents if t is not None), None)
    if moving is None:
        raise NoRule("nothing moves")
    parts = [torch.zeros_like(moving) if t is None else t for t in tangents]
    return torch.stack(parts, axis(node._saved_dim, len(shape)))


def _cat(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    if any(t is None for t in tangents):  # how long that piece is was not saved
        raise NoRule("a piece that does not move")
    return torch.cat([t for t in tangents if t is not None], axis(node._saved_dim, len(shape)))


def _roll(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    t, shifts = only(tangents), [signed(shift) for shift in node._saved_shifts]
    if not node._saved_dims:  # rolled as if it were flat
        return t.reshape(t.shape[0], -1).roll(shifts, (1,)).reshape(t.shape)
    return t.roll(shifts, [axis(dim, len(shape)) for dim in node._saved_dims])


def _pad(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    return F.pad(only(tangents), [signed(int(n)) for n in node._saved_pad])


def _masked(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    return stretched(only(tangents), shape).masked_fill(node._saved_mask, 0)


def _where(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    here, there = (0.0 if t is None else stretched(t, shape) for t in tangents)
    return torch.where(node._saved_condition, here, there)


def _index_select(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    return only(tangents).index_select(axis(node._saved_dim, len(shape)), node._saved_index)


def _softmax(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    weighted = only(tangents) * node._saved_result
    return weighted - node._saved_result * weighted.sum(axis(node._saved_dim, len(shape)), keepdim=True)


def _log_softmax(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    t = only(tangents)
    return t - (t * node._saved_result.exp()).sum(axis(node._saved_dim, len(shape)), keepdim=True)


def _layer_norm(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    t, over = only(tangents), tuple(range(-len(node._saved_normalized_shape), 0))
    normed = (node._saved_input - node._saved_result1) * node._saved_result2
    drift = t.mean(over, keepdim=True) + normed * (t * normed).mean(over, keepdim=True)
    pushed = (t - drift) * node._saved_result2
    return pushed if node._saved_weight is None else pushed * node._saved_weight


def _batch_norm(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    """With the statistics of its training: a factor for each channel."""
    if node._saved_training:
        raise NoRule("a batch norm in training")
    factor = (node._saved_running_var + node._saved_eps).rsqrt()
    factor = factor if node._saved_weight is None else factor * node._saved_weight
    return only(tangents) * factor.view(-1, *[1] * (len(shape) - 2))


def _max_pool(node: Node, tangents: Tangents, shape: Shape) -> Tensor:
    """Each number comes from the place it was taken from."""
    t, taken = only(tangents).flatten(-2), node._saved_result1.flatten(-2)
    return t.gather(-1, taken.expand(t.shape[0], *taken.shape)).reshape(t.shape[0], *shape)


RULES: dict[str, Rule] = {
    **dict.fromkeys(SAME.split(), _same),
    **{name: _diagonal(pull) for name, pull in DIAGONAL.items()},
    "AddBackward0": _add,
    "AddmmBackward0": _addmm,
    "BmmBackward0": _mm,
    "CatBackward0": _cat,
    "ConstantPadNdBackward0": _pad,
    "ConvolutionBackward0": _convolve,
    "DivBackward0": _divide,
    "ExpandBackward0": _expand,
    "IndexSelectBackward0": _index_select,
    "LogSoftmaxBackward0": _log_softmax,
    "MaskedFillBackward0": _masked,
    "MaxPool2DWithIndicesBackward0": _max_pool,
    "MeanBackward0": _mean,
    "MeanBackward1": _mean_along,
    "MmBackward0": _mm,
    "MulBackward0": _multiply,
    "MvBackward0": _mv,
    "NativeBatchNormBackward0": _batch_norm,
    "NativeLayerNormBackward0": _layer_norm,
    "PermuteBackward0": _permute,
    "RollBackward0": _roll,
    "RsubBackward1": _reversed,
    "SelectBackward0": _select,
    "SliceBackward0": _slice,
    "SoftmaxBackward0": _softmax,
    "StackBackward0": _stack,
    "SubBackward0": _subtract,
    "SumBackward0": _sum,
    "SumBackward1": _sum_along,
    "TBackward0": _turn,
    "TransposeBackward0": _transpose,
    "WhereBackward0": _where,
}
