"""Operations that are local: which patch of the input a patch of the output is made from, and how it is pulled."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from wrt._backends.torch.walk import Spot
from wrt._core.index import Shape

Box = tuple[tuple[int, int], ...]  # start and stop along each axis

CONVOLUTION = "ConvolutionBackward0"
SELECT = "SelectBackward0"
ELEMENTWISE = frozenset(
    f"{name}Backward0"
    for name in (
        "Tanh Relu Sigmoid Gelu Silu Softplus Elu LeakyRelu Hardtanh Hardswish Mish Exp Log Sin Cos Sqrt Abs Neg "
        "Reciprocal Clone Erf Log1P Expm1 Add Sub Mul Div Pow"
    ).split()
)
BY_RESULT: dict[str, Any] = {
    "TanhBackward0": torch.ops.aten.tanh_backward.default,
    "SigmoidBackward0": torch.ops.aten.sigmoid_backward.default,
    "ReluBackward0": lambda g, result: torch.ops.aten.threshold_backward.default(g, result.expand_as(g), 0),
}
"""Backwards that need only the result, and so only a patch of it; the others are asked for the slope of everything."""
SAME_NUMBERS = ("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0", "UnsqueezeBackward0", "SqueezeBackward")
FORWARD: dict[int, Any] = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
TRANSPOSED: dict[int, Any] = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}


class Layer:
    """One tensor of the run: the operation that made it, and those of its inputs that lead to x."""

    __slots__ = ("name", "node", "shape", "sources", "spot", "weight", "windows")

    def __init__(self, spot: Spot) -> None:
        self.spot = spot
        self.node = spot[0]
        self.name: str = type(self.node).__name__
        self.shape = shape_of(spot)
        self.sources: list[tuple[int, Layer]] = []
        self.weight: torch.Tensor | None = None
        self.windows: tuple[Any, Any, Any, Any] = ((), (), (), ())
        """Stride, padding, dilation and kernel of a convolution, along each axis."""
        if self.name == CONVOLUTION:
            node = self.node
            self.weight = node._saved_weight.detach()
            self.windows = (node._saved_stride, node._saved_padding, node._saved_dilation, self.weight.shape[2:])

    @property
    def everything(self) -> Box:
        return tuple((0, n) for n in self.shape)

    def work(self, box: Box) -> float:
        """Multiplications of one pull through a patch."""
        size = math.prod(b - a for a, b in box)
        return float(size * math.prod(self.weight.shape[1:])) if self.weight is not None else float(size)

    def selected(self, shape: Shape) -> tuple[int, int]:
        """Axis and index of a select; torch keeps negative ones as huge unsigned numbers."""
        axis, index = (k - 2**64 if k >= 2**63 else k for k in (self.node._saved_dim, self.node._saved_index))
        axis %= len(shape)
        return axis, index % shape[axis]


def shape_of(spot: Spot) -> Shape:
    variable = getattr(spot[0], "variable", None)
    return tuple((spot[0]._input_metadata[spot[1]] if variable is None else variable).shape)


def is_local(layer: Layer) -> bool:
    """Whether the rules below hold for it."""
    if layer.name == CONVOLUTION:
        plain = not layer.node._saved_transposed and layer.node._saved_groups == 1
        return plain and len(layer.shape) in FORWARD and [k for k, _ in layer.sources] == [0]
    if layer.name in ELEMENTWISE:
        return all(source.shape == layer.shape for _, source in layer.sources)
    if layer.name.startswith(SAME_NUMBERS):
        return all(_long(source.shape) == _long(layer.shape) for _, source in layer.sources)
    return layer.name == SELECT


def back(layer: Layer, source: Layer, box: Box) -> Box:
    """What of an input a patch of the output is computed from."""
    if layer.name == CONVOLUTION:
        spatial = [
            (max(0, a * s - p), min(n, (b - 1) * s - p + (k - 1) * d + 1))
            for (a, b), n, s, p, d, k in zip(box[2:], source.shape[2:], *layer.windows, strict=True)
        ]
        return (box[0], (0, source.shape[1]), *spatial)
    if layer.name == SELECT:
        axis, index = layer.selected(source.shape)
        return (*box[:axis], (index, index + 1), *box[axis:])
    return box if layer.name in ELEMENTWISE else _moved(box, layer.shape, source.shape)


def forth(layer: Layer, source: Layer, box: Box) -> Box:
    """What of the output a patch of an input can change."""
    if layer.name == CONVOLUTION:
        spatial = [
            (max(0, -(((k - 1) * d - a - p) // s)), min(n, (b - 1 + p) // s + 1))
            for (a, b), n, s, p, d, k in zip(box[2:], layer.shape[2:], *layer.windows, strict=True)
        ]
        return (box[0], (0, layer.shape[1]), *spatial)
    if layer.name == SELECT:
        axis, index = layer.selected(source.shape)
        rest = (*box[:axis], *box[axis + 1 :])
        return rest if box[axis][0] <= index < box[axis][1] else tuple((0, 0) for _ in rest)
    return box if layer.name in ELEMENTWISE else _moved(box, source.shape, layer.shape)


def pulled(layer: Layer, k: int, source: Layer, g: torch.Tensor, box: Box, into: Box) -> torch.Tensor:
    """Cotangents of a patch of the k-th input from those of a patch of the output: (count, *patch)."""
    if layer.name == CONVOLUTION:
        return _convolved(layer, g, box, into)
    if layer.name in BY_RESULT:
        result = layer.node._saved_result.detach()[tuple(slice(a, b) for a, b in box)]
        return _fitted(BY_RESULT[layer.name](g, result), [a for a, _ in box], into)
    if layer.name in ELEMENTWISE:
        slope = layer.node(torch.ones(layer.shape, dtype=g.dtype, device=g.device))
        slope = slope[k] if isinstance(slope, tuple) else slope
        return _fitted(g * slope[tuple(slice(a, b) for a, b in box)], [a for a, _ in box], into)
    before = back(layer, source, box)
    return _fitted(g.reshape(len(g), *(b - a for a, b in before)), [a for a, _ in before], into)


def _convolved(layer: Layer, g: torch.Tensor, box: Box, into: Box) -> torch.Tensor:
    assert layer.weight is not None
    stride, padding, dilation, kernel = layer.windows
    weight = layer.weight[box[1][0] : box[1][1]]
    flat = g.flatten(0, 1)  # (count * samples, channels, ...)
    spatial = len(kernel)
    if all(step == 1 for step in stride):
        # a convolution with the kernel turned round, of just what the patch needs: quicker than a transposed one
        around: list[int] = []
        for (a, b), (c, e), p, d, size in zip(box[2:], into[2:], padding, dilation, kernel, strict=True):
            around = [a - (c + p - (size - 1) * d), (e + p) - b, *around]
        turned = weight.flip(tuple(range(2, 2 + spatial))).transpose(0, 1)
        piece = FORWARD[len(box)](F.pad(flat, around), turned, dilation=tuple(dilation))
        return piece.unflatten(0, (len(g), -1))[:, :, into[1][0] : into[1][1]]
    piece = TRANSPOSED[len(box)](flat, weight, stride=tuple(stride), dilation=tuple(dilation))
    starts = [a * s - p for (a, _), s, p in zip(box[2:], stride, padding, strict=True)]
    return _fitted(piece.unflatten(0, (len(g), -1)), [box[0][0], 0, *starts], into)


def _fitted(piece: torch.Tensor, at: list[int], into: Box) -> torch.Tensor:
    """What of a patch that starts at `at` lies inside a box; zeros where the box is larger."""
    around: list[int] = []
    for axis, (start, (a, b)) in enumerate(zip(at, into, strict=True), start=1):
        around = [start - a, b - start - piece.shape[axis], *around]
    return F.pad(piece, around) if any(around) else piece


def _moved(box: Box, before: Shape, after: Shape) -> Box:
    """The same patch where axes of one are elsewhere."""
    known = iter([each for each, n in zip(box, before, strict=True) if n != 1])
    return tuple((0, 1) if n == 1 else next(known) for n in after)


def _long(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)
