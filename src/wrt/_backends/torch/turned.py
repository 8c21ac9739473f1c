"""A convolution in steps of one is pulled by another one, with the kernel turned round and its channels exchanged.

On a CPU torch's own backward of small convolutions takes up to twenty times as long, and never noticeably less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

Tensor: TypeAlias = torch.Tensor


def turned(weight: Tensor, groups: int) -> Tensor:
    """(out, in / groups, ...) -> (in, out / groups, ...), back to front."""
    weight = weight.flip(tuple(range(2, weight.dim())))
    if groups == 1:
        return weight.transpose(0, 1)
    return weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)


def pull(g: Tensor, weight: Tensor, padding: Sequence[int], dilation: Sequence[int], groups: int) -> Tensor | None:
    """What the cotangents of a convolution in steps of one are at its input; None where it pads beyond its kernel."""
    sizes = zip(padding, dilation, weight.shape[2:], strict=True)
    around = [apart * (size - 1) - pad for pad, apart, size in sizes]
    if min(around) < 0:
        return None
    steps: Any = [1] * len(around)
    zero: Any = [0] * len(around)
    return torch.ops.aten.convolution.default(
        g, turned(weight, groups), None, steps, around, dilation, False, zero, groups
    )
