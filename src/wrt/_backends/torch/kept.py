"""What running a model changes besides its result: running statistics, counters, random states; all put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def kept(objects: Sequence[Any]) -> Iterator[None]:
    """Modules among the objects run inside without a trace of it in their buffers or in torch's generators."""
    models = [one for one in map(_module, objects) if one is not None]
    buffers = [buffer for model in models for buffer in model.buffers()]
    before = [buffer.detach().clone() for buffer in buffers]
    devices = sorted({b.device.index or 0 for b in _tensors(models) if b.device.type == "cuda"})
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        with torch.no_grad():
            for buffer, saved in zip(buffers, before, strict=True):
                if not torch.equal(buffer, saved):
                    buffer.copy_(saved)


def _module(obj: Any) -> torch.nn.Module | None:
    """The module behind a model, or behind a bound method of one."""
    if isinstance(obj, torch.nn.Module):
        return obj
    owner = getattr(obj, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else None


def _tensors(models: list[torch.nn.Module]) -> list[torch.Tensor]:
    return [tensor for model in models for tensor in (*model.parameters(), *model.buffers())]
