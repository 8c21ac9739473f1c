"""Sums, means and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from wrt._backends.torch.nodes import Node, NoRule, axis
from wrt._backends.torch.rules.batch import Tensor
from wrt._backends.torch.rules.families import One, Rule, times

layer_norm_backward = torch.ops.aten.native_layer_norm_backward.default

REDUCED = ("_saved_dim", "_saved_keepdim")


def _axes(dim: int | Sequence[int] | None, dims: int) -> list[int]:
    """The axes of the input that were summed, counted in its batched gradient; none given means all."""
    given = [dim] if isinstance(dim, int) else dim
    return sorted(axis(one, dims) for one in given) if given else [*range(1, 1 + dims)]


def _opened(node: Node, g: Tensor, dims: int) -> tuple[Tensor, list[int]]:
    """A gradient with the axes that were summed over, one number long each."""
    axes = _axes(node._saved_dim, dims)
    if not node._saved_keepdim and dims:
        for one in axes:
            g = g.unsqueeze(one)
    return g, axes


def _unbatched(x: Tensor, node: Node) -> Tensor:
    """What was reduced, with the axes that were summed over."""
    return _opened(node, x.unsqueeze(0), 0 if node._saved_self is None else node._saved_self.dim())[0].squeeze(0)


def _sum(node: Node, g: Tensor, free: bool) -> Tensor:
    shape = node._saved_self_sym_sizes
    return _opened(node, g, len(shape))[0].expand(g.shape[0], *shape)


def _sum_of_all(node: Node, g: Tensor, free: bool) -> Tensor:
    shape = node._saved_self_sym_sizes
    return g.view(g.shape[0], *[1] * len(shape)).expand(g.shape[0], *shape)


def _mean(node: Node, g: Tensor, free: bool) -> Tensor:
    shape = node._saved_self_sym_sizes
    g, axes = _opened(node, g, len(shape))
    return (g / math.prod(shape[one - 1] for one in axes)).expand(g.shape[0], *shape)


def _mean_of_all(node: Node, g: Tensor, free: bool) -> Tensor:
    return _sum_of_all(node, g / node._saved_self_sym_numel, free)


def _logsumexp(node: Node, g: Tensor, free: bool) -> Tensor:
    x = node._saved_self
    return _opened(node, g, x.dim())[0] * (x - _unbatched(node._saved_result, node)).exp()


def _norm(node: Node, g: Tensor, free: bool) -> Tensor:
    if node._saved_ord != 2:
        raise NoRule("a norm of another order than 2")
    x, size = node._saved_self, _unbatched(node._saved_result, node)
    return _opened(node, g, x.dim())[0] * (x / size).masked_fill_(size == 0, 0)


def _around_the_mean(node: Node, x: Tensor) -> Tensor:
    """The slope of the variance of x."""
    axes = [one - 1 for one in _axes(node._saved_dim, x.dim())]
    count = math.prod(x.shape[one] for one in axes) - (1 if node._saved_correction is None else node._saved_correction)
    if count <= 0:
        raise NoRule("the variance of too few numbers")
    return (x - x.mean(axes, keepdim=True)) * (2 / count)


def _variance(node: Node, g: Tensor, free: bool) -> Tensor:
    x = node._saved_self
    return _opened(node, g, x.dim())[0] * _around_the_mean(node, x)


def _deviation(node: Node, g: Tensor, free: bool) -> Tensor:
    x, size = node._saved_self, _unbatched(node._saved_result, node)
    return _opened(node, g, x.dim())[0] * (_around_the_mean(node, x) / (2 * size)).masked_fill_(size == 0, 0)


def _softmax(node: Node, g: Tensor, free: bool) -> Tensor:
    result = node._saved_result
    weighted = times(g, result, free)
    return weighted.addcmul_(weighted.sum(axis(node._saved_dim, result.dim()), keepdim=True), result, value=-1)


def _log_softmax(node: Node, g: Tensor, free: bool) -> Tensor:
    result = node._saved_result
    taken = g.sum(axis(node._saved_dim, result.dim()), keepdim=True), result.exp()
    return g.addcmul_(*taken, value=-1) if free else torch.addcmul(g, *taken, value=-1)


def _layer_norm(node: Node, g: Tensor, free: bool) -> Tensor:
    """By torch's own kernel, for which each row is some more tokens."""
    saved = node._saved_input, node._saved_result1, node._saved_result2
    x, mean, rstd = [one.expand(g.shape[0], *one.shape).contiguous() for one in saved]  # strides are not looked at
    given = node._saved_normalized_shape, mean, rstd, node._saved_weight, node._saved_bias
    pulled: Tensor = layer_norm_backward(g.contiguous(), x, *given, [True, False, False])[0]
    return pulled


def _cumsum(node: Node, g: Tensor, free: bool) -> Tensor:
    if g.dim() == 1:
        return g.clone()
    along = axis(node._saved_dim, g.dim() - 1)
    return g.flip(along).cumsum(along).flip(along)


REDUCTIONS: dict[str, Rule] = {
    "CumsumBackward0": One(_cumsum, "_saved_dim"),
    "LinalgVectorNormBackward0": One(_norm, *REDUCED),
    "LogSoftmaxBackward0": One(_log_softmax, "_saved_dim"),
    "LogsumexpBackward0": One(_logsumexp, *REDUCED),
    "MeanBackward0": One(_mean_of_all, gives="stretched"),
    "MeanBackward1": One(_mean, *REDUCED, gives="stretched"),
    "NativeLayerNormBackward0": One(_layer_norm),
    "SoftmaxBackward0": One(_softmax, "_saved_dim"),
    "StdBackward0": One(_deviation, *REDUCED, "_saved_correction"),
    "SumBackward0": One(_sum_of_all, gives="stretched"),
    "SumBackward1": One(_sum, *REDUCED, gives="stretched"),
    "VarBackward0": One(_variance, *REDUCED, "_saved_correction"),
}
