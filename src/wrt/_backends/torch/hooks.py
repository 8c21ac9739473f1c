"""Hooks of the user that take part in an answer: it is the gradient they train with, and `explain()` says so."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from wrt._backends.torch import compat
from wrt._core.value import Side
from wrt._names.spoken import called

_ON_TENSORS: dict[int, weakref.ref[Any]] = {}
_ON_NODES: dict[int, weakref.ref[Any]] = {}
_OF_MODULES: dict[int, weakref.ref[Any]] = {}
"""The dictionaries in which hooks are kept, as long as anybody keeps them."""

_TENSORS: dict[int, weakref.ref[torch.Tensor]] = {}
"""Tensors on which a hook was set, as long as they live."""

_ALL_SEEN: list[bool] = []
"""One entry once hooks are followed: whether none can have been set before."""


def follow_hooks() -> None:
    """Know every hook from now on: one that is set on a node changes gradients too, and no tensor tells of it."""
    if not _ALL_SEEN:
        _ALL_SEEN.append(compat.on_hook(_note))


def _note(hooks: Any, tensor: torch.Tensor | None, by_torch: bool) -> None:
    _remember(_ON_TENSORS if tensor is not None else _OF_MODULES if by_torch else _ON_NODES, hooks)
    if tensor is not None:
        _remember(_TENSORS, tensor)


def _remember(known: dict[int, weakref.ref[Any]], one: Any) -> None:
    key = id(one)
    known[key] = weakref.ref(one, lambda _: known.pop(key, None))


def may_act() -> bool:
    """Whether some hook may be set anywhere: a pull that does not pass the engine has to be proven by one that does."""
    if not all(_ALL_SEEN):
        return True
    known = [*_ON_TENSORS.values(), *_ON_NODES.values(), *_OF_MODULES.values()]
    return bool(known) and any(hooks() for hooks in known)


def hook_notes(start: Any, x: Side) -> Iterator[str]:
    """One sentence for each tensor or module with hooks between here and x; walks the graph, so only on request."""
    nodes = set(compat.reachable(start))
    between = nodes | {value.key.edge.node for value in x.values if value.key.edge is not None}
    for tensor in _tensors_with_hooks():
        node = compat.edge_of(tensor)
        if node is not None and node.node in between:
            name = called(tensor, f"the tensor of shape {tuple(tensor.shape)}")
            yield f"{_hooks(len(tensor._backward_hooks))} on {name}: the answer is the gradient you train with"
    on_nodes = sum(len(hooks() or ()) for hooks in list(_ON_NODES.values()))
    if on_nodes:
        act = "acts if it lies" if on_nodes == 1 else "act if they lie"
        yield f"{_counted(on_nodes)} of yours on nodes of graphs {act} on the path, which autograd does not tell"
    modules = sum(map(compat.is_module_hook, nodes))
    if modules:
        yield f"{_hooks(modules)} on modules: the answer is the gradient you train with"


def _tensors_with_hooks() -> list[Any]:
    """Autograd does not tell which nodes have hooks; tensors do, as long as they live."""
    if all(_ALL_SEEN):
        tensors = [tensor for reference in list(_TENSORS.values()) if (tensor := reference()) is not None]
    else:
        tensors = [obj for obj in gc.get_objects() if issubclass(type(obj), torch.Tensor)]
    return [tensor for tensor in tensors if tensor.requires_grad and tensor._backward_hooks]


def _hooks(count: int) -> str:
    return f"{_counted(count)} of yours {'acts' if count == 1 else 'act'}"


def _counted(count: int) -> str:
    return "a hook" if count == 1 else f"{count} hooks"
