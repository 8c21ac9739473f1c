"""Nodes of torch's graph as rules of our own read them: which tensor is meant, and what a node saved."""

from __future__ import annotations

from typing import Any

Node = Any  # torch.autograd.graph.Node, whose metadata is not typed
Spot = tuple[Node, int]  # a node and the number of its output: one tensor


class NoRule(Exception):
    """Something on the way is not plainly known; the engine is asked instead."""


def signed(number: int) -> int:
    """A saved integer: torch tells negative ones as huge numbers."""
    return number - 2**64 if number >= 2**63 else number


def axis(dim: int, dims: int) -> int:
    """An axis of a tensor as one of a batch of such; a tensor of one number has one axis, too, where somebody names it."""
    dim = signed(dim)
    return 1 + (dim if dim >= 0 else dim + max(dims, 1))
