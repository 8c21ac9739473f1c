"""Module paths: which module an operation ran in, and what each module took and gave."""

from __future__ import annotations

import weakref

import torch

WRAPPERS = ("_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


class ModulePaths:
    """Names of modules below the outermost one that is called; wrappers leave no trace in a path."""

    def __init__(self) -> None:
        self.inside: list[str] = []  # the modules that are being called, the outermost first
        self._paths: dict[int, tuple[weakref.ref[torch.nn.Module], str]] = {}

    def enter(self, module: torch.nn.Module) -> str:
        """A module is called."""
        self.inside.append(self._path(module, outermost=not self.inside))
        return self.inside[-1]

    def leave(self, module: torch.nn.Module) -> str:
        """A module has returned; one inside it that raised never did."""
        path = self._path(module, outermost=len(self.inside) == 1)
        while self.inside and self.inside.pop() != path:
            pass
        return path

    def _path(self, module: torch.nn.Module, *, outermost: bool) -> str:
        known = self._paths.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        if outermost:
            self.learn(module)
            return self._paths[id(module)][1]
        return type(module).__name__

    def learn(self, root: torch.nn.Module) -> None:
        for path, module in root.named_modules():
            known = self._paths.get(id(module))
            if known is None or known[0]() is not module:
                self._paths[id(module)] = (weakref.ref(module), without_wrappers(path))

    def roots(self) -> list[torch.nn.Module]:
        """The outermost modules that were called and still exist."""
        found = [reference() for reference, path in self._paths.values() if path == ""]
        return [module for module in found if module is not None]


def without_wrappers(path: str) -> str:
    """`_orig_mod.module.fc.weight` is `fc.weight`.

    >>> without_wrappers("_orig_mod.module.fc.weight")
    'fc.weight'
    """
    return ".".join(part for part in path.split(".") if part not in WRAPPERS)
