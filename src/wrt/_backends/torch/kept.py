"""What running a model changes besides its result: running statistics, counters, random states; all put back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class kept:  # a generator would take as long as everything else here
    """Modules among the objects run inside without a trace of it in their buffers or in torch's generators."""

    __slots__ = ("before", "on_devices", "state")

    def __init__(self, objects: Sequence[Any]) -> None:
        found = [one for one in map(_module, objects) if one is not None]
        self.before = [(buffer, buffer.detach().clone()) for buffer in _buffers(found)]
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
        self.state = torch.get_rng_state()
        self.on_devices = [(device, torch.cuda.get_rng_state(device)) for device in devices]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        torch.set_rng_state(self.state)
        for device, state in self.on_devices:
            torch.cuda.set_rng_state(state, device)
        for buffer, saved in self.before:
            if not torch.equal(buffer, saved):
                with torch.no_grad():
                    buffer.copy_(saved)


def _buffers(modules: list[Any]) -> list[torch.Tensor]:
    """Every buffer of modules and of their parts; `Module.buffers()` takes longer than a small model runs."""
    found, seen = [], set()
    while modules:
        module = modules.pop()
        if module is not None and id(module) not in seen:
            seen.add(id(module))
            found += [buffer for buffer in module._buffers.values() if buffer is not None]
            modules.extend(module._modules.values())
    return found


def _module(obj: Any) -> torch.nn.Module | None:
    """The module behind a model, or behind a bound method of one."""
    if isinstance(obj, torch.nn.Module):
        return obj
    owner = getattr(obj, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else None
