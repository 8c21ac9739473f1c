"""The rules by the kind of node they are for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from wrt._backends.torch.rules.elementwise import ELEMENTWISE
from wrt._backends.torch.rules.families import Rule
from wrt._backends.torch.rules.pictures import PICTURES
from wrt._backends.torch.rules.products import PRODUCTS
from wrt._backends.torch.rules.reductions import REDUCTIONS
from wrt._backends.torch.rules.shapes import SHAPES
from wrt._backends.torch.rules.slicing import SLICING


def _joined(*tables: Mapping[str, Rule]) -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for table in tables:
        twice = rules.keys() & table.keys()
        if twice:
            raise ValueError(f"two rules for {', '.join(sorted(twice))}")
        rules.update(table)
    return rules


RULES = _joined(ELEMENTWISE, SHAPES, PRODUCTS, REDUCTIONS, SLICING, PICTURES)

_BY_TYPE: dict[type, Rule | None] = {}
"""Types of nodes that were met: a lookup by name would take longer than the rest of a step."""


def rule_of(node: Any) -> Rule | None:
    """The rule for a node; none for nodes of Python Functions, whatever they are called."""
    kind = type(node)
    try:
        return _BY_TYPE[kind]
    except KeyError:
        if issubclass(kind, torch._C._FunctionBase):
            return None  # types of their own, made and dropped with each Function
        found = _BY_TYPE[kind] = RULES.get(kind.__name__)
        return found


def forget_types() -> None:
    """Look every type up again: a rule was exchanged."""
    _BY_TYPE.clear()
