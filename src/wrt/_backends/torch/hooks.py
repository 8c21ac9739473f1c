"""Hooks of the user that take part in an answer: it is the gradient they train with, and `explain()` says so."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch

from wrt._backends.torch import compat
from wrt._core.spoken import called
from wrt._core.value import Side

_SET = [0]


def hooks_set() -> int:
    """How many times a hook was put on a tensor, as far as it lives or was put there since this was first asked.

    A pull that does not pass the engine must know: hooks change gradients, and autograd does not tell who has one.
    """
    original = torch.Tensor.register_hook
    if not getattr(original, "_wrt_counts", False):

        def register_hook(self: torch.Tensor, hook: Any) -> Any:
            _SET[0] += 1
            return original(self, hook)

        register_hook.__doc__ = original.__doc__
        register_hook._wrt_counts = True  # type: ignore[attr-defined]
        torch.Tensor.register_hook = register_hook
        _SET[0] += len(_tensors_with_hooks())
    return _SET[0]


def hook_notes(start: Any, x: Side) -> Iterator[str]:
    """One sentence for each tensor or module with hooks between here and x; walks the graph, so only on request."""
    nodes = set(compat.reachable(start))
    between = nodes | {value.key.edge.node for value in x.values if value.key.edge is not None}
    for tensor in _tensors_with_hooks():
        node = compat.edge_of(tensor)
        if node is not None and node.node in between:
            name = called(tensor, f"the tensor of shape {tuple(tensor.shape)}")
            yield f"{_hooks(len(tensor._backward_hooks))} on {name}: the answer is the gradient you train with"
    modules = sum(map(compat.is_module_hook, nodes))
    if modules:
        yield f"{_hooks(modules)} on modules: the answer is the gradient you train with"


def _tensors_with_hooks() -> list[Any]:
    """Autograd does not tell which nodes have hooks; tensors do, as long as they live."""
    tensors = (obj for obj in gc.get_objects() if issubclass(type(obj), torch.Tensor))
    return [tensor for tensor in tensors if tensor.requires_grad and tensor._backward_hooks]


def _hooks(count: int) -> str:
    return "a hook of yours acts" if count == 1 else f"{count} hooks of yours act"
