"""What running a model changes besides its result: running statistics, counters, random states; all put back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
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
        for module in chain.from_iterable(map(_modules, objects)):
            if isinstance(module, torch.jit.ScriptModule):  # nothing can be put in the places of its buffers
                self.compiled += [(one, one.detach().clone()) for one in module.buffers(recurse=False)]
            elif module._buffers:
                self.tables.append((module._buffers, dict(module._buffers)))
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


def _modules(obj: Any) -> Iterable[torch.nn.Module]:
    """A model, or that behind a bound method of one, with all its parts."""
    model = obj if isinstance(obj, torch.nn.Module) else getattr(obj, "__self__", None)
    return model.modules() if isinstance(model, torch.nn.Module) else ()
