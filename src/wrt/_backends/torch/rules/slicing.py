"""Parts of a tensor, and tensors put together of parts: gradients are added where they belong, or cut out."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wrt._backends.torch.nodes import Node, NoRule, axis, signed
from wrt._backends.torch.rules.batch import Tensor
from wrt._backends.torch.rules.families import Joined, Many, Pieces, Rule, Written


def _slice(node: Node, g: Tensor, into: Tensor) -> None:
    start, step = signed(node._saved_start), node._saved_step
    along = axis(node._saved_dim, into.dim() - 1)
    start = max(0, start + into.shape[along]) if start < 0 else start
    count = g.shape[along]
    if count:
        place = into.narrow(along, start, (count - 1) * step + 1)
        (place if step == 1 else torch.ops.aten.slice(place, along, 0, None, step)).add_(g)


def _select(node: Node, g: Tensor, into: Tensor) -> None:
    into.select(axis(node._saved_dim, into.dim() - 1), signed(node._saved_index)).add_(g)


def _diagonal(node: Node, g: Tensor, into: Tensor) -> None:
    dims = into.dim() - 1
    into.diagonal(signed(node._saved_offset), axis(node._saved_dim1, dims), axis(node._saved_dim2, dims)).add_(g)


def _index(node: Node, g: Tensor, into: Tensor) -> None:
    indices = node._saved_indices
    given = [k for k, index in enumerate(indices) if index is not None]
    if any(indices[k].dtype not in (torch.int64, torch.int32) for k in given) or given[-1] - given[0] >= len(given):
        raise NoRule("a mask, or indices with other axes between them")
    if len(given) == 1 and indices[given[0]].dim() == 1:
        into.index_add_(1 + given[0], indices[given[0]], g)
    else:
        torch.ops.aten.index_put_(into, [None, *indices], g, True)


def _gather(node: Node, g: Tensor, into: Tensor) -> None:
    index = node._saved_index
    if index.dim() == 0 or into.dim() == 1:
        into.view(into.shape[0], -1).add_(g.reshape(into.shape[0], -1).sum(1, keepdim=True))
    else:
        into.scatter_add_(axis(node._saved_dim, into.dim() - 1), index.expand(g.shape), g)


def _index_select(node: Node, g: Tensor, into: Tensor) -> None:
    if into.dim() == 1:
        raise NoRule("elements of a single number")
    into.index_add_(axis(node._saved_dim, into.dim() - 1), node._saved_index, g)


def _extreme(node: Node, g: Tensor, into: Tensor) -> None:
    """Of `max` and `min` along an axis: to the element that was taken."""
    if into.dim() == 1:
        into.add_(g)
        return
    along, index = axis(node._saved_dim, into.dim() - 1), node._saved_indices
    if not node._saved_keepdim:
        index, g = index.unsqueeze(along - 1), g.unsqueeze(along)
    into.scatter_add_(along, index.expand(g.shape), g)


def _unbound(node: Node, into: Tensor, piece: int) -> Tensor:
    return into.select(axis(node._saved_dim, into.dim() - 1), piece)


def _split(node: Node, into: Tensor, piece: int) -> Tensor:
    along, size = axis(node._saved_dim, into.dim() - 1), node._saved_split_size
    start = piece * size
    return into.narrow(along, start, min(size, into.shape[along] - start))


def _split_with_sizes(node: Node, into: Tensor, piece: int) -> Tensor:
    sizes = node._saved_split_sizes
    return into.narrow(axis(node._saved_dim, into.dim() - 1), sum(sizes[:piece]), sizes[piece])


def _cut_apart(node: Node, g: Tensor) -> Sequence[Tensor]:
    along = axis(node._saved_dim, g.dim() - 1)
    sizes = [None if source is None else source._input_metadata[k].shape[along - 1] for source, k in node.next_functions]
    if None in sizes:  # no gradient is wanted of it, and torch does not tell how long it was
        if sizes.count(None) > 1:
            raise NoRule("several constants between the parts of a tensor")
        sizes[sizes.index(None)] = g.shape[along] - sum(size for size in sizes if size is not None)
    return g.split_with_sizes(sizes, along)


def _stacked(node: Node, g: Tensor) -> Sequence[Tensor]:
    return g.unbind(axis(node._saved_dim, g.dim() - 1))


def _added(node: Node, g: Tensor, free: bool) -> Tensor:
    if g.dim() == 1 or node._saved_source_dim != g.dim() - 1:
        raise NoRule("an index of a single number")
    pulled = g.index_select(axis(node._saved_dim, g.dim() - 1), node._saved_index)
    return pulled if node._saved_alpha == 1 else pulled * node._saved_alpha


SLICING: dict[str, Rule] = {
    "CatBackward0": Joined(_cut_apart, "_saved_dim"),
    "DiagonalBackward0": Written(_diagonal, "_saved_dim1", "_saved_dim2", "_saved_offset"),
    "GatherBackward0": Written(_gather, "_saved_dim"),
    "IndexAddBackward0": Many(lambda node, g, free: g, _added, settings=("_saved_dim", "_saved_alpha")),
    "IndexBackward0": Written(_index),
    "IndexSelectBackward0": Written(_index_select, "_saved_dim"),
    "MaxBackward0": Written(_extreme, "_saved_dim", "_saved_keepdim"),
    "MinBackward0": Written(_extreme, "_saved_dim", "_saved_keepdim"),
    "SelectBackward0": Written(_select, "_saved_dim"),
    "SliceBackward0": Written(_slice, "_saved_dim"),
    "SplitBackward0": Pieces(_split, "_saved_dim"),
    "SplitWithSizesBackward0": Pieces(_split_with_sizes, "_saved_dim"),
    "StackBackward0": Joined(_stacked, "_saved_dim"),
    "UnbindBackward0": Pieces(_unbound, "_saved_dim"),
    "UnsafeSplitBackward0": Pieces(_split, "_saved_dim"),
}
