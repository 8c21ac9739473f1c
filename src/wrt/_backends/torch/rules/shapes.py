"""Operations that move numbers without changing them, and those that repeat them."""

from __future__ import annotations

from wrt._backends.torch.nodes import Node, NoRule, axis, signed
from wrt._backends.torch.rules.batch import Tensor
from wrt._backends.torch.rules.families import Many, One, Rule, Same


def _transposed(node: Node, g: Tensor, free: bool) -> Tensor:
    dims = g.dim() - 1
    return g.transpose(axis(node._saved_dim0, dims), axis(node._saved_dim1, dims)) if dims else g


def _permuted(node: Node, g: Tensor, free: bool) -> Tensor:
    dims = g.dim() - 1
    back = [0] * (dims + 1)
    for here, there in enumerate(node._saved_dims, 1):
        back[axis(there, dims)] = here
    return g.permute(back)


def _rolled(node: Node, g: Tensor, free: bool) -> Tensor:
    dims, back = node._saved_dims, [-signed(shift) for shift in node._saved_shifts]
    if not dims:  # rolled as if it were flat
        return g.reshape(g.shape[0], -1).roll(back, (1,)).reshape(g.shape)
    return g.roll(back, [axis(dim, g.dim() - 1) for dim in dims])


def _flipped(node: Node, g: Tensor, free: bool) -> Tensor:
    return g.flip([axis(dim, g.dim() - 1) for dim in node._saved_dims])


def _unpadded(node: Node, g: Tensor, free: bool) -> Tensor:
    pad = [signed(count) for count in node._saved_pad]
    if min(pad, default=0) < 0:
        raise NoRule("padding that cuts off")
    for k in range(len(pad) // 2):
        along = g.dim() - 1 - k
        before, after = pad[2 * k], pad[2 * k + 1]
        g = g.narrow(along, before, g.shape[along] - before - after)
    return g


SHAPES: dict[str, Rule] = {
    "CloneBackward0": Same(),
    "ConstantPadNdBackward0": One(_unpadded, "_saved_pad", gives="view"),
    "ExpandBackward0": Many(lambda node, g, free: g),
    "FlipBackward0": One(_flipped, "_saved_dims"),
    "PermuteBackward0": One(_permuted, "_saved_dims", gives="view"),
    "ReshapeAliasBackward0": Same(),
    "RollBackward0": One(_rolled, "_saved_dims"),
    "SqueezeBackward0": Same(),
    "SqueezeBackward1": Same(),
    "SqueezeBackward2": Same(),
    "SqueezeBackward4": Same(),
    "TBackward0": One(lambda node, g, free: g.transpose(1, -1), gives="view"),
    "TransposeBackward0": One(_transposed, "_saved_dim0", "_saved_dim1", gives="view"),
    "TrilBackward0": One(lambda node, g, free: g.tril(signed(node._saved_diagonal)), "_saved_diagonal"),
    "TriuBackward0": One(lambda node, g, free: g.triu(signed(node._saved_diagonal)), "_saved_diagonal"),
    "UnsafeViewBackward0": Same(),
    "UnsqueezeBackward0": Same(),
    "ViewBackward0": Same(),
}
