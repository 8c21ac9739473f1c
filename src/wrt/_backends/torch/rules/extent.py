"""How many numbers a tensor has, and in which shape: told by what its node saved, which is read in a fraction of the time
that torch takes to tell what it knows of a node.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from wrt._backends.torch.nodes import ByKind, Node, Spot


def _viewed(node: Node) -> int:
    return math.prod(node._saved_self_sym_sizes)


COUNTS: dict[str, Callable[[Node], int]] = {
    "AddmmBackward0": lambda node: node._saved_mat1_sym_sizes[0] * node._saved_mat2_sym_sizes[1],
    "MmBackward0": lambda node: node._saved_self_sym_sizes[0] * node._saved_mat2_sym_sizes[1],
    "SqueezeBackward0": _viewed,
    "SqueezeBackward1": _viewed,
    "SqueezeBackward2": _viewed,
    "UnsafeViewBackward0": _viewed,
    "ViewBackward0": _viewed,
}

_BY_KIND = ByKind(COUNTS)


def numbers(spot: Spot) -> int:
    """How many numbers a tensor has."""
    node, output = spot
    count = _BY_KIND[type(node)]
    return math.prod(node._input_metadata[output].shape) if count is None else count(node)


def shaped(gradient: Tensor, node: Node, output: int = 0) -> Tensor:
    """The gradients of what a node gave in the shape that it had."""
    return in_shape(gradient, tuple(node._input_metadata[output].shape))


def shaped_like(gradient: Tensor, saved: Tensor) -> Tensor:
    """The same where the node saved a tensor of that shape."""
    return in_shape(gradient, saved.shape)


def in_shape(gradient: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Gradients of tensors of a shape, in that shape."""
    return gradient if gradient.shape[1:] == shape else gradient.reshape(gradient.shape[0], *shape)
