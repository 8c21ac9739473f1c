"""Tensors that somebody has saved in a way of his own: on another device, on disk, as a run to be repeated."""

from __future__ import annotations

from typing import Any

import torch

from wrt._backends.torch.compat import raw_saved
from wrt._backends.torch.nodes import Node

_APART: list[bool] = []
"""One entry once somebody, somewhere, has had tensors saved in a way of his own."""


def follow_saved_tensors() -> None:
    """Know whether saved tensors may be somewhere else: to read one may take a whole forward run (checkpoints)."""
    hooks: Any = torch.autograd.graph.saved_tensors_hooks
    enter = hooks.__enter__
    if getattr(enter, "_wrt_follows", False):
        return

    def __enter__(self: Any) -> Any:
        _APART[:] = [True]
        return enter(self)

    __enter__._wrt_follows = True  # type: ignore[attr-defined]
    hooks.__enter__ = __enter__


def may_be_apart() -> bool:
    """Whether some node may have saved its tensors elsewhere."""
    return bool(_APART)


def saved_plainly(node: Node) -> bool:
    """Whether what a node saved can be read as it is."""
    kind: type = type(node)
    return not any(_unpacks(getattr(node, name)) for name in raw_saved(kind))


def _unpacks(saved: Any) -> bool:
    if isinstance(saved, (tuple, list)):
        return any(map(_unpacks, saved))
    return getattr(saved, "unpack_hook", True) is not None  # older versions do not tell
