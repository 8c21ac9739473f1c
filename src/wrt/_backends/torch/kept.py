"""What running a model changes besides its result: running statistics, counters, random states; all put back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Table = dict[str, torch.Tensor | None]


class kept:  # a generator would take as long as everything else here
    """Modules among the objects run inside on copies of their buffers, and torch's generators are put back afterwards.

    The buffers themselves are never written: what a recorded run has saved of its own stays as it was then.
    """

    __slots__ = ("compiled", "copies", "on_devices", "state", "tables")

    def __init__(self, objects: Sequence[Any]) -> None:
        self.tables: list[tuple[Table, Table]] = []
        self.compiled: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.copies: dict[int, torch.Tensor] = {}
        for table, plain in _buffers([one for one in map(_module, objects) if one is not None]):
            if plain:
                self.tables.append((table, dict(table)))
            else:
                self.compiled += [(one, one.detach().clone()) for one in table.values() if one is not None]
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
        self.state = torch.get_rng_state()
        self.on_devices = [(device, torch.cuda.get_rng_state(device)) for device in devices]

    def __enter__(self) -> None:
        for table, before in self.tables:
            table.update({name: self._copied(buffer) for name, buffer in before.items() if buffer is not None})

    def _copied(self, buffer: torch.Tensor) -> torch.Tensor:
        """The same copy for one buffer in two places."""
        found = self.copies.get(id(buffer))
        if found is None:
            found = self.copies[id(buffer)] = buffer.detach().clone().requires_grad_(buffer.requires_grad)
        return found

    def __exit__(self, *error: object) -> None:
        torch.set_rng_state(self.state)
        for device, state in self.on_devices:
            torch.cuda.set_rng_state(state, device)
        for table, before in self.tables:
            table.update(before)
        for buffer, saved in self.compiled:
            if not torch.equal(buffer, saved):
                with torch.no_grad():
                    buffer.copy_(saved)


def _buffers(modules: list[Any]) -> list[tuple[Table, bool]]:
    """The buffers of modules and of their parts, and whether others can be put in their places (not in TorchScript).

    `Module.buffers()` takes longer than a small model runs.
    """
    found: list[tuple[Table, bool]] = []
    seen = set()
    while modules:
        module = modules.pop()
        if module is not None and id(module) not in seen:
            seen.add(id(module))
            plain = not isinstance(module, torch.jit.ScriptModule)
            buffers = module._buffers if plain else dict(module.named_buffers(recurse=False))
            if buffers:
                found.append((buffers, plain))
            modules.extend(module.children() if not plain else module._modules.values())
    return found


def _module(obj: Any) -> torch.nn.Module | None:
    """The module behind a model, or behind a bound method of one."""
    if isinstance(obj, torch.nn.Module):
        return obj
    owner = getattr(obj, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else None
