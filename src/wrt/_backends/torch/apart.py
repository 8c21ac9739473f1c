"""Tensors that somebody has saved in a way of his own: on another device, on disk, as a run to be repeated."""

from __future__ import annotations

from typing import Any

from wrt._backends.torch.compat import raw_saved
from wrt._backends.torch.nodes import Node


def may_be_apart() -> bool:
    """Whether some node may have saved its tensors elsewhere."""
    return True


def saved_plainly(node: Node) -> bool:
    """Whether what a node saved can be read as it is."""
    kind: type = type(node)
    return not any(_unpacks(getattr(node, name)) for name in raw_saved(kind))


def _unpacks(saved: Any) -> bool:
    if isinstance(saved, (tuple, list)):
        return any(map(_unpacks, saved))
    return getattr(saved, "unpack_hook", True) is not None  # older versions do not tell
