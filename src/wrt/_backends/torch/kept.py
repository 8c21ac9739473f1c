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
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    state, on_devices = torch.get_rng_state(), [torch.cuda.get_rng_state(device) for device in devices]
    try:
        yield
    finally:
        torch.set_rng_state(state)
        for device, saved in zip(devices, on_devices, strict=True):
            torch.cuda.set_rng_state(saved, device)
        for buffer, saved in zip(buffers, before, strict=True):
            if not torch.equal(buffer, saved):
                with torch.no_grad():
                    buffer.copy_(saved)


def _module(obj: Any) -> torch.nn.Module | None:
    """The module behind a model, or behind a bound method of one."""
    if isinstance(obj, torch.nn.Module):
        return obj
    owner = getattr(obj, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else None
