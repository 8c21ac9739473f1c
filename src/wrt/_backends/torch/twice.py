"""Backwards that cannot be differentiated again: torch leaves their branch out of a second derivative without a word.

A custom backward that is marked `once_differentiable`, or leaves torch, gives gradients without history. What they
depended on is lost, and a second derivative through them would come out as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from wrt._backends.torch import compat
from wrt._backends.torch.nodes import Node
from wrt._core.value import Value
from wrt.errors import EngineRefused

Gradients = tuple[torch.Tensor | None, ...]


def refuse_lost(rows: Callable[[torch.Tensor], Any], seeds: torch.Tensor, start: Node, by: Sequence[Value]) -> Any:
    """The pass `rows(seeds)`; refused if a custom backward in it loses what is to be differentiated by next."""
    custom = list(filter(compat.is_custom, compat.reachable(start)))
    if not custom:
        return rows(seeds)
    with _watched(custom) as ran:
        found = rows(seeds)
    suspects = {node: took for node, gave, took in ran if any(map(_without_history, gave))}
    targets = {value.key.edge.node for value in by if value.key.edge is not None}
    for node in _losing(list(suspects), lambda: rows(seeds[:1].detach().requires_grad_())):
        starts = [node, *(g.grad_fn for g in suspects[node] if g is not None and g.grad_fn is not None)]
        if any(other in targets for start in starts for other in compat.reachable(start)):
            name = node.name().removesuffix("Backward")
            raise EngineRefused(
                f"the backward of {name} cannot be differentiated again",
                "it is marked once_differentiable or leaves torch: a second derivative would leave this branch out",
                f"write {name}.backward with torch operations on ctx.saved_tensors, without @once_differentiable",
            )
    return found


def _losing(nodes: list[Node], again: Callable[[], Any]) -> list[Node]:
    """Those that lose the history of what they are given; a pass from a seed that has one, unlike the real ones, shows it."""
    if not nodes:
        return []
    with _watched(nodes) as ran:
        try:
            again()
        except RuntimeError:  # `g.numpy()` of a gradient with history
            return nodes
    return [node for node, gave, _ in ran if any(map(_without_history, gave))]


@contextmanager
def _watched(nodes: Iterable[Node]) -> Iterator[list[tuple[Node, Gradients, Gradients]]]:
    """What these nodes give and take while the block runs."""
    ran: list[tuple[Node, Gradients, Gradients]] = []
    handles = [node.register_hook(lambda gave, took, node=node: ran.append((node, gave, took))) for node in nodes]
    try:
        yield ran
    finally:
        for handle in handles:
            handle.remove()


def _without_history(gradient: torch.Tensor | None) -> bool:
    if gradient is None:
        return False
    return not gradient.requires_grad or (gradient.grad_fn is not None and compat.refuses_double_backward(gradient.grad_fn))
