"""Module paths: which module an operation ran in, and what each module took and gave."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.utils import _pytree as pytree

from wrt._backends.torch.standing import Undo, here, stands_in

WRAPPERS = ("_orig_mod.", "module.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


class ModulePaths:
    """Names of modules below the outermost one that is called; wrappers leave no trace in a path."""

    def __init__(self) -> None:
        self.inside: list[str] = []  # the modules that are being called, the outermost first
        self._paths: dict[int, tuple[weakref.ref[torch.nn.Module], str]] = {}

    def of(self, module: torch.nn.Module, *, outermost: bool) -> str:
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
    path += "."
    changed = True
    while changed:
        changed = False
        for wrapper in WRAPPERS:
            if path.startswith(wrapper):
                path, changed = path[len(wrapper) :], True
            elif f".{wrapper}" in path:
                path, changed = path.replace(f".{wrapper}", "."), True
    return path.rstrip(".")


@stands_in
def called() -> Undo:
    """Tell a recording before and after every module call of its thread."""

    def before(module: torch.nn.Module, args: Any) -> None:
        recording = here()
        if recording is not None:
            if isinstance(module, torch.jit.ScriptModule):
                recording.listener.looks_away()
            paths: ModulePaths = recording.paths
            paths.inside.append(paths.of(module, outermost=not paths.inside))
            recording.listener.module = paths.inside[-1]

    def after(module: torch.nn.Module, args: Any, output: Any) -> None:
        recording = here()
        if recording is not None and recording.paths.inside:
            inside = recording.paths.inside
            path = recording.paths.of(module, outermost=len(inside) == 1)
            while inside and inside.pop() != path:  # a module that raised never came back
                pass
            if path:
                recording.name_module(path, _tensors(args), _tensors(output))
            recording.listener.module = inside[-1] if inside else ""

    handles = [
        torch_module.register_module_forward_pre_hook(before),
        torch_module.register_module_forward_hook(after),
    ]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
