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
from wrt._core.protocol import Arrays
from wrt._core.value import Value
from wrt.errors import NotDifferentiable, NotRecorded


class TorchBackend:
    name = "torch"
    arrays: Arrays = TorchArrays()

    def __init__(self) -> None:
        self.live = LiveRecord(self)

    def owns(self, obj: Any) -> bool:
        return isinstance(obj, (torch.Tensor, torch.nn.Module))

    def lift(self, obj: torch.Tensor) -> Value:
        if not (obj.is_floating_point() or obj.is_complex()):
            raise NotDifferentiable(
                f"d() of a tensor of {str(obj.dtype).removeprefix('torch.')}",
                "whole numbers and booleans have no derivative; the path ends where the value was made so",
                "ask for the floating-point tensor it was computed from, for example the embedding of token ids",
            )
        if obj.is_inference():
            raise NotRecorded(
                "d() of an inference tensor",
                "it was made under torch.inference_mode(), which keeps no history and can never get one",
                "compute it outside of torch.inference_mode(), with gradients switched on",
            )
        if obj.layout != torch.strided:
            raise NotDifferentiable(
                f"d() of a tensor of layout {str(obj.layout).removeprefix('torch.')}",
                "the elements of a sparse tensor have no fixed positions",
                "ask for d(tensor.values()), or make it dense with tensor.to_dense()",
            )
        if type(obj) is not torch.Tensor:
            sharded.refuse_parts(obj)
            obj = sharded.as_computed(obj)
        recorded = record.find(obj) if record.RECORDINGS else None
        return self.live.lift(obj) if recorded is None else recorded

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

    def capabilities(self) -> dict[str, str]:
        return {}


BACKEND = TorchBackend()
