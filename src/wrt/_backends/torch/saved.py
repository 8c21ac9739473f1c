"""Copy on write for what backward needs.

torch refuses a backward whose saved tensors were overwritten. Inside a recording every saved tensor is held by a small
box; just before a write, the boxes on that memory take a copy. Nothing is copied unless it is about to be overwritten.
"""

from __future__ import annotations

import weakref
from collections.abc import Sized
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Box:
    """One tensor that some backward needs, saved while an operation ran (`operation`: its number)."""

    __slots__ = ("__weakref__", "operation", "tensor")

    def __init__(self, tensor: Tensor, operation: int) -> None:
        self.tensor = tensor
        self.operation = operation


class Overwritten(NamedTuple):
    """What torch alone would refuse: a saved tensor that was written over, by the operation of this number."""

    box: weakref.ref[Box]
    operation: int


class Saved:
    """The boxes of a recording, by the memory they lie on."""

    def __init__(self, operations: Sized = ()) -> None:
        self._operations = operations
        self.overwritten: list[Overwritten] = []
        self._boxes: dict[int, list[weakref.ref[Box]]] = {}

    def pack(self, tensor: Tensor) -> Box:
        # a leaf has no history that could hold its own box
        box = Box(tensor if tensor.is_leaf else tensor.detach(), len(self._operations))
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
                self.overwritten.append(Overwritten(reference, len(self._operations)))

    def boxed(self, args: Any) -> Any:
        """Arguments of a call with a box in the place of every tensor; `opened` gives them back."""
        with torch._C.DisableTorchFunction():  # making boxes is no operation of the user's
            return self._boxed(args)

    def _boxed(self, args: Any) -> Any:
        if isinstance(args, Tensor):
            box = self.pack(args)
            box.operation = -1  # no backward needs it
            return box
        if isinstance(args, dict):
            return {key: self._boxed(arg) for key, arg in args.items()}
        if type(args) in (list, tuple):
            return type(args)(self._boxed(arg) for arg in args)
        return args


def opened(args: Any) -> Any:
    """Boxed arguments with their tensors, as they were when the call was made."""
    if isinstance(args, Box):
        return args.tensor
    if isinstance(args, dict):
        return {key: opened(arg) for key, arg in args.items()}
    if type(args) in (list, tuple):
        return type(args)(opened(arg) for arg in args)
    return args
