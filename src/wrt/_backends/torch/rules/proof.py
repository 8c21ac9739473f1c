"""A rule is held to torch when it is first met: two random rows, once by the rule, once by the node's own backward.

Once for each setting that makes a difference (axes, factors, which inputs are wanted), each kind of numbers and of
device, and for as long as the process runs. A rule that disagrees is not used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from wrt._backends.torch.nodes import Node, Spot
from wrt._backends.torch.rules.batch import Batch, Tensor
from wrt._backends.torch.rules.families import Link, Rule, Slots

ROWS = 2
SLACK = 256  # roundings that may lie between a rule and torch
SEED = 20_011

Where = tuple[torch.dtype, str]

_HELD: dict[Where, dict[tuple[Any, ...], bool]] = {}
"""What was found out, by kind of numbers and device, then by rule, inputs and setting."""

_REFUTED: set[Rule] = set()

PASSING: set[type] = set()
"""Kinds of nodes that are no steps, and were seen to pass a gradient on as it is."""


def known_of(where: Where) -> dict[tuple[Any, ...], bool]:
    """What is known of rules for these numbers, on this kind of device."""
    return _HELD.setdefault(where, {})


def key_of(rule: Rule, node: Node, slots: Slots, links: Sequence[Link]) -> tuple[Any, ...]:
    """For what a rule is proven: which inputs are wanted, of how many outputs, and with which settings."""
    if len(links) == 1 == len(slots) and not rule.settings:
        return rule, links[0][0]
    wanted = tuple([k for k, _, _ in links])
    if rule.settings:
        return (rule, wanted, len(slots), *[getattr(node, name) for name in rule.settings])
    return rule, wanted, len(slots)


def holds(rule: Rule, node: Node, slots: Slots, links: Sequence[Link], spots: Sequence[Spot]) -> bool | None:
    """Whether a rule agrees with torch on such a node; None where that could not be seen."""
    if rule in _REFUTED:
        return False
    found = _agrees(rule, node, slots, links, spots)
    if found is False:
        _REFUTED.add(rule)
    return found


def passes(node: Node, links: Sequence[Link]) -> bool:
    """Whether a kind of node passes a gradient on as it is, number by number; looked at once."""
    expected = node._input_metadata[0]
    seed = torch.from_numpy(np.asarray(np.random.default_rng(SEED).standard_normal(expected.shape)))
    seed = seed.to(expected.device, expected.dtype)
    try:
        with torch.no_grad():
            (pulled,) = _pulled(node, {0: seed.unsqueeze(0)}, 0, links).values()
    except Exception:  # torch refuses: nothing is proven
        return False
    if not torch.equal(pulled, seed.reshape(-1)):
        return False
    PASSING.add(type(node))
    return True


def forget() -> None:
    """Nothing is proven any more."""
    PASSING.clear()
    _HELD.clear()
    _REFUTED.clear()


def _agrees(rule: Rule, node: Node, slots: Slots, links: Sequence[Link], spots: Sequence[Spot]) -> bool | None:
    """None where torch cannot be asked, or where its answer is not finite and tells nothing."""
    chance = np.random.default_rng(SEED)
    batch = Batch(ROWS, spots, [False] * len(spots))
    seeds: dict[int, Tensor] = {}
    for output, slot in slots:
        expected = node._input_metadata[output]
        numbers = torch.from_numpy(np.asarray(chance.standard_normal((ROWS, *expected.shape))))
        batch.held[slot] = seeds[output] = numbers.to(expected.device, expected.dtype)
    try:
        with torch.no_grad():
            plain = [_pulled(node, seeds, row, links) for row in range(ROWS)]
            rule.apply(batch, node, slots, links)
    except Exception:  # torch refuses, or the rule does: nothing is proven
        return None
    for row, expected in enumerate(plain):
        for slot, said in expected.items():
            ruled: Any = batch.held[slot]
            verdict = _close(ruled[row], said)
            if not verdict:
                return verdict
    return True


def _pulled(node: Node, seeds: dict[int, Tensor], row: int, links: Sequence[Link]) -> dict[int, Tensor]:
    """One row through one node by its own backward; the engine, too, sums up what was stretched on the way there."""
    given = [seeds[k][row] if k in seeds else None for k in range(len(node._input_metadata))]
    found = node(*given)
    found = found if isinstance(found, tuple) else (found,)
    pulled: dict[int, Tensor] = {}
    for k, slot, (source, output) in links:
        said = found[k].sum_to_size(source._input_metadata[output].shape).reshape(-1)
        pulled[slot] = pulled[slot] + said if slot in pulled else said
    return pulled


def _close(ruled: Tensor, plain: Tensor) -> bool | None:
    ruled = ruled.reshape(plain.shape)
    if not plain.numel():
        return True
    size = float(plain.abs().max())
    if not size < float("inf"):  # a NaN is not smaller either
        return None
    off = float((ruled.double() - plain.double()).abs().max())
    return off <= SLACK * torch.finfo(plain.dtype).eps * size or off == 0.0
