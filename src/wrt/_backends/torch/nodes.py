"""Nodes of torch's graph as they are read here: which kind a node is, which tensor is meant, and what it saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch

Entry = TypeVar("Entry")

Node = Any  # torch.autograd.graph.Node, whose metadata is not typed
Spot = tuple[Node, int]  # a node and the number of its output: one tensor


class ByKind(dict[type, Entry | None], Generic[Entry]):
    """A table by the names of nodes, looked up by their types; None for a node that is not in it.

    To ask a type for its name takes longer than all the rest of a walk, so what was found is kept. Nodes of Python
    Functions are never in a table, whatever they are called: their types come and go with a class of the user's, and
    nothing here holds on to them.
    """

    def __init__(self, named: Mapping[str, Entry]) -> None:
        super().__init__()
        self.named = named

    def __missing__(self, kind: type) -> Entry | None:
        if issubclass(kind, torch._C._FunctionBase):
            return None
        found = self[kind] = self.named.get(kind.__name__)
        return found


def signed(number: int) -> int:
    """A saved integer: torch tells negative ones as huge numbers."""
    return number - 2**64 if number >= 2**63 else number
