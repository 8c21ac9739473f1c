"""PyTorch as a backend: what it owns and how its tensors become Values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from wrt._backends.torch import compat, sharded
from wrt._backends.torch.arrays import TorchArrays
from wrt._backends.torch.live import LiveRecord
from wrt._backends.torch.recording import record
from wrt._backends.torch.recording.recording import TorchRecording
from wrt._core.protocol import Arrays, Capability
from wrt._core.value import Value


class TorchBackend:
    name = "torch"
    arrays: Arrays = TorchArrays()
    takes_numbers = False
    writes_in_place = True

    def __init__(self) -> None:
        self.live = LiveRecord(self, record.RECORDINGS, record.find)
        self.lift: Callable[[torch.Tensor], Value] = self.live.lift_for_user

    def owns(self, obj: Any) -> bool:
        return isinstance(obj, (torch.Tensor, torch.nn.Module))

    def recorded(self, obj: torch.Tensor) -> Value | None:
        """Its Value in the latest recording that saw it, whatever its dtype; None where no recording did."""
        return record.find(obj)

    def tree(self, obj: Any) -> tuple[list[Any], Callable[[list[Any]], Any]] | None:
        """The tensors of a module or a container, and how to put answers in their places."""
        if isinstance(obj, torch.Tensor):
            return None
        if isinstance(obj, torch.nn.Module):
            named = sharded.unsharded(obj, dict(obj.named_parameters()))
            return list(named.values()), lambda answers: dict(zip(named, answers, strict=True))
        leaves, structure = compat.tree_flatten(obj)
        if len(leaves) == 1 and leaves[0] is obj:
            return None
        return leaves, lambda answers: compat.tree_unflatten(answers, structure)

    def trace(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, values: bool = False
    ) -> TorchRecording:
        return record.trace(self, f, args, kwargs, values=values)

    def record(self, **options: Any) -> AbstractContextManager[TorchRecording]:
        return record.recording(self, **options)

    def tap(self, name: str, tensor: torch.Tensor, frame: Any) -> None:
        record.tap(name, tensor, frame)

    def capabilities(self) -> dict[Capability, str]:
        return {}


BACKEND = TorchBackend()
