"""Products of matrices: all rows of a batch in one of them, wherever the other factor is the same for every row."""

from __future__ import annotations

import torch

from wrt._backends.torch.rules.batch import Tensor
from wrt._backends.torch.rules.families import Many, Product, Rule


def _scaled(pulled: Tensor, factor: float) -> Tensor:
    return pulled if factor == 1 else pulled * factor


def _to_the_left(g: Tensor, right: Tensor) -> Tensor:
    """Of (b, n, m) @ (b, m, p): (k, b, n, p) -> (k, b, n, m), with the rows of the batch next to those of the matrix."""
    k, b, n, p = g.shape
    joined = g.transpose(0, 1).reshape(b, k * n, p)
    return torch.bmm(joined, right.mT).view(b, k, n, right.shape[1]).transpose(0, 1)


def _to_the_right(g: Tensor, left: Tensor) -> Tensor:
    """Of (b, n, m) @ (b, m, p): (k, b, n, p) -> (k, b, m, p), with the rows of the batch next to the columns."""
    k, b, n, p = g.shape
    joined = g.permute(1, 2, 0, 3).reshape(b, n, k * p)
    return torch.bmm(left.mT, joined).view(b, left.shape[2], k, p).permute(2, 0, 1, 3)


PRODUCTS: dict[str, Rule] = {
    "AddmmBackward0": Product(1, "_saved_mat1", "_saved_mat2"),
    "AddmvBackward0": Many(
        lambda node, g, free: _scaled(g, node._saved_beta),
        lambda node, g, free: _scaled(g.unsqueeze(2) * node._saved_vec, node._saved_alpha),
        lambda node, g, free: _scaled(torch.mm(g, node._saved_mat), node._saved_alpha),
    ),
    "BaddbmmBackward0": Many(
        lambda node, g, free: _scaled(g, node._saved_beta),
        lambda node, g, free: _scaled(_to_the_left(g, node._saved_batch2), node._saved_alpha),
        lambda node, g, free: _scaled(_to_the_right(g, node._saved_batch1), node._saved_alpha),
    ),
    "BmmBackward0": Many(
        lambda node, g, free: _to_the_left(g, node._saved_mat2),
        lambda node, g, free: _to_the_right(g, node._saved_self),
    ),
    "DotBackward0": Many(
        lambda node, g, free: g.unsqueeze(1) * node._saved_tensor,
        lambda node, g, free: g.unsqueeze(1) * node._saved_self,
    ),
    "MmBackward0": Product(0, "_saved_self", "_saved_mat2"),
    "MvBackward0": Many(
        lambda node, g, free: g.unsqueeze(2) * node._saved_vec,
        lambda node, g, free: torch.mm(g, node._saved_self),
    ),
}
