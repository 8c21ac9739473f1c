"""The rules by the kind of node they are for."""

from __future__ import annotations

from collections.abc import Mapping

from wrt._backends.torch.nodes import ByKind
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

BY_KIND = ByKind(RULES)
