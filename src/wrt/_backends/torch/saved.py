"""Copy on write for what backward needs.

torch refuses a backward whose saved tensors were overwritten. Inside a recording every saved tensor is held by a small
box; just before a write, the boxes on that memory take a copy. Nothing is copied unless it is about to be overwritten.
"""

from __future__ import annotations

import weakref

import torch

Tensor = torch.Tensor


class Box:
    """One tensor that some backward needs."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Saved:
    """The boxes of a recording, by the memory they lie on."""

    def __init__(self) -> None:
        self._boxes: dict[int, list[weakref.ref[Box]]] = {}

    def pack(self, tensor: Tensor) -> Box:
        box = Box(tensor.detach())
        if tensor.layout != torch.strided:
            return box  # no memory of its own that could be written in place
        where = tensor.untyped_storage()._cdata
        boxes = self._boxes.get(where)
        if boxes is None:
            self._boxes[where] = [weakref.ref(box)]
        else:
            boxes.append(weakref.ref(box))
        return box

    @staticmethod
    def unpack(box: Box) -> Tensor:
        return box.tensor

    def before_write(self, tensor: Tensor) -> None:
        """Copy what is saved of this tensor's memory; it is about to change."""
        for reference in self._boxes.pop(tensor.untyped_storage()._cdata, ()):
            box = reference()
            if box is not None:
                box.tensor = box.tensor.clone()
