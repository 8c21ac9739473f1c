"""Convolutions, pools and the batch norms of trained networks: each row of a batch is some more pictures."""

from __future__ import annotations

import torch

from wrt._backends.torch import turned
from wrt._backends.torch.nodes import Node, NoRule, signed
from wrt._backends.torch.rules.batch import Tensor
from wrt._backends.torch.rules.families import Many, One, Rule, Written, times

aten = torch.ops.aten


def _joined(g: Tensor, pictures: int) -> Tensor:
    """(k, n, ...) -> (k n, ...), or (k, ...) as it is where there is one picture and no axis for it."""
    return g.reshape(g.shape[0] * pictures, *g.shape[2:]) if pictures else g


def _convolution(node: Node, g: Tensor, free: bool) -> Tensor:
    x = node._saved_input
    stride, padding, dilation = (
        [signed(one) for one in each] for each in (node._saved_stride, node._saved_padding, node._saved_dilation)
    )
    more = node._saved_transposed, node._saved_output_padding, node._saved_groups
    joined = _joined(g, x.shape[0])
    if joined.is_cpu and not node._saved_transposed and set(stride) == {1}:
        found = turned.pull(joined, node._saved_weight, padding, dilation, node._saved_groups)
        if found is not None:
            return found.view(g.shape[0], *x.shape)
    alike = x[:1].expand(joined.shape[0], *x.shape[1:])  # its numbers are for the weight's gradient alone
    wanted = [True, False, False]
    rest = stride, padding, dilation, *more, wanted
    pulled: Tensor = aten.convolution_backward(joined, alike, node._saved_weight, None, *rest)[0]
    return pulled.view(g.shape[0], *x.shape)


def _average_pool(node: Node, g: Tensor, free: bool) -> Tensor:
    x = node._saved_self
    joined = _joined(g, x.shape[0] if x.dim() == 4 else 0)
    alike = x[:1].expand(joined.shape[0], *x.shape[-3:]) if x.dim() == 4 else x.expand(joined.shape[0], *x.shape)
    window = node._saved_kernel_size, node._saved_stride, node._saved_padding
    counts = node._saved_ceil_mode, node._saved_count_include_pad, node._saved_divisor_override
    pulled: Tensor = aten.avg_pool2d_backward(joined, alike, *window, *counts)
    return pulled.view(g.shape[0], *x.shape)


def _max_pool(node: Node, g: Tensor, into: Tensor) -> None:
    index = node._saved_result1  # of the pixels of one channel, counted through
    into.flatten(-2).scatter_add_(-1, index.flatten(-2).expand(g.flatten(-2).shape), g.flatten(-2))


def _batch_norm(node: Node, g: Tensor, free: bool) -> Tensor:
    if node._saved_training:
        raise NoRule("a batch norm that is being trained")
    scale = (node._saved_running_var + node._saved_eps).rsqrt()
    if node._saved_weight is not None:
        scale = scale * node._saved_weight
    return times(g, scale.to(g.dtype).view(-1, *[1] * (g.dim() - 3)), free)


PICTURES: dict[str, Rule] = {
    "AvgPool2DBackward0": One(_average_pool),
    "ConvolutionBackward0": Many(
        _convolution, settings=("_saved_transposed", "_saved_stride", "_saved_dilation", "_saved_groups")
    ),
    "MaxPool2DWithIndicesBackward0": Written(_max_pool),
    "NativeBatchNormBackward0": Many(_batch_norm, settings=("_saved_training",)),
}
