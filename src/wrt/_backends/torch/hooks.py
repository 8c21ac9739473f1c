"""Hooks of the user that take part in an answer: it is the gradient they train with, and `explain()` says so.

Tensors and nodes are asked when somebody wants to know: nothing listens in between.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch

from wrt._backends.torch import compat
from wrt._core.value import Side
from wrt._names.peek import called


def hook_notes(start: Any, x: Side) -> Iterator[str]:
    """One sentence for each tensor or module with hooks between here and x; walks the graph, so only on request."""
    if not compat.hooks_so_far():
        return
    nodes = set(compat.reachable(start))
    between = nodes | {value.key.edge.node for value in x.values if value.key.edge is not None}
    kinds = {torch.Tensor, *_below(torch.Tensor)}
    for tensor in [one for one in gc.get_objects() if type(one) in kinds]:
        edge = compat.edge_of(tensor) if tensor.requires_grad and tensor._backward_hooks else None
        if edge is not None and edge.node in between:
            name = called(tensor, f"the tensor of shape {tuple(tensor.shape)}")
            yield f"{_hooks(len(tensor._backward_hooks))} on {name}: the answer is the gradient you train with"
    on_modules = [node for node in nodes if compat.is_module_hook(node)]
    on_nodes = sum(compat.node_hooks(node) for node in between.difference(on_modules))
    if on_nodes:
        yield f"{_hooks(on_nodes)} on nodes of the graph: the answer is the gradient you train with"
    if on_modules:
        yield f"{_hooks(len(on_modules))} on modules: the answer is the gradient you train with"


def _below(kind: type) -> Iterator[type]:
    below: list[type] = type.__subclasses__(kind)
    for one in below:
        yield one
        yield from _below(one)


def _hooks(count: int) -> str:
    return "a hook of yours acts" if count == 1 else f"{count} hooks of yours act"
