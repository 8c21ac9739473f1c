"""Copy on write for what backward needs.

torch refuses a backward whose saved tensors were overwritten. Just before a write inside a recording, every tensor that
the graph saved so far is put into a small box, and the boxes on the memory about to be written take a copy. Nothing is
boxed unless something is written, and nothing is copied unless it is about to be overwritten.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from wrt._backends.torch.compat import Words, memory_of, raw_saved, tree_map, without_function_modes

if TYPE_CHECKING:
    from wrt._backends.torch.recording.recorder import Recorder


class Box:
    """One tensor that some backward needs, saved while an operation ran (`operation`: its number)."""

    __slots__ = ("__weakref__", "operation", "tensor", "version")

    def __init__(self, tensor: Tensor, operation: int) -> None:
        self.tensor = tensor
        self.operation = operation
        self.version = _version(tensor)


class Overwritten(NamedTuple):
    """What torch alone would refuse: a saved tensor that was written over, by the operation of this number."""

    box: weakref.ref[Box]
    operation: int


class Saved:
    """The boxes of a recording, by the memory they lie on."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.overwritten: list[Overwritten] = []
        self._boxes: dict[int, list[weakref.ref[Box]]] = {}
        self._seen: set[Any] = set()
        self._looked = self._met = 0  # operations and values that were looked at
        self._packing: int | None = None

    # ---------------------------------------------------------------- boxes

    def pack(self, tensor: Tensor) -> Box:
        # a leaf has no history that could hold its own box
        number = len(self._recorder.operations) if self._packing is None else self._packing
        box = Box(tensor if tensor.is_leaf else tensor.detach(), number)
        if tensor.layout == torch.strided:  # others have no memory of their own that could be written in place
            self._boxes.setdefault(memory_of(tensor), []).append(weakref.ref(box))
        return box

    @staticmethod
    def unpack(box: Box) -> Tensor:
        if box.version != _version(box.tensor):  # written where nobody watched: after the recording
            raise RuntimeError(Words.INPLACE_IN_FULL)
        return box.tensor

    def before_write(self, tensor: Tensor) -> None:
        """Copy what is saved of this tensor's memory; it is about to change."""
        self._catch_up()
        copies: dict[Any, Tensor] = {}  # a weight is saved once for every step of a recurrence: one copy for all
        for reference in self._boxes.pop(memory_of(tensor), ()):
            box = reference()
            if box is not None:
                held = box.tensor
                region = (held.shape, held.stride(), held.storage_offset(), held.dtype, held.requires_grad)
                if region not in copies:
                    copies[region] = held.clone()
                box.tensor = copies[region]
                box.version = _version(box.tensor)
                self.overwritten.append(Overwritten(reference, len(self._recorder.operations)))

    @contextmanager
    def hooks(self, written: Sequence[Tensor]) -> Iterator[None]:
        """While a write runs: what it saves itself may hide inside a node of a view, where nobody can look later.

        What it saves of the memory it is about to write is copied: `h[:2].mul_(h[3])` needs h[3] as it was.
        """
        before = {memory_of(tensor): (tensor, _version(tensor)) for tensor in written}

        def pack(tensor: Tensor) -> Box:
            target = before.get(memory_of(tensor)) if tensor.layout == torch.strided else None
            if target is None or _version(target[0]) != target[1]:
                return self.pack(tensor)
            box = self.pack(tensor.detach().clone())
            self.overwritten.append(Overwritten(weakref.ref(box), box.operation))
            return box

        try:
            with torch.autograd.graph.saved_tensors_hooks(pack, self.unpack):
                yield
        finally:
            before.clear()  # the graph keeps `pack`, and must not keep the user's tensors by it

    # ---------------------------------------------------------------- what the graph saved so far

    def _catch_up(self) -> None:
        """Box what nodes have saved since the last write."""
        known = len(self._recorder.operations)
        if known == self._looked:
            return
        self._seen.update(self._recorder.nodes_from_before(self._met))
        self._met = len(self._recorder.values)
        try:
            for number in range(self._looked, known):
                self._packing = number
                self._box_saved(self._recorder.nodes_of(number))
        finally:
            self._packing = None
        self._looked = known

    def _box_saved(self, waiting: list[Any]) -> None:
        while waiting:
            node = waiting.pop()
            if node is None or node in self._seen:
                continue
            self._seen.add(node)
            kind: type = type(node)
            for name in raw_saved(kind):
                raw = getattr(node, name)
                for one in raw if isinstance(raw, (tuple, list)) else (raw,):
                    with suppress(AttributeError, RuntimeError):  # nothing saved there, or boxed by somebody already
                        one.register_hooks(self.pack, self.unpack)
            waiting.extend(upstream for upstream, _ in node.next_functions)

    # ---------------------------------------------------------------- arguments of calls

    def box(self, args: Any) -> Any:
        """Arguments of a call with a box in the place of every tensor; `unbox` gives them back."""
        with without_function_modes():  # making boxes is no operation of the user's
            return tree_map(self._box_argument, args)

    def _box_argument(self, arg: Any) -> Any:
        if not isinstance(arg, Tensor):
            return arg
        box = self.pack(arg)
        box.operation = -1  # no backward needs it
        return box


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def unbox(args: Any) -> Any:
    """Boxed arguments with their tensors, as they were when the call was made."""
    return tree_map(lambda arg: arg.tensor if isinstance(arg, Box) else arg, args)
