"""A rule is held to torch when it is first met: two random rows, once by the rule, once by the node's own backward.

Once for each setting that makes a difference (axes, factors, which inputs are wanted), each kind of numbers and of
device, and for as long as the process runs. A rule that disagrees is not used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from wrt._backends.torch.rules.batch import Batch, Tensor
from wrt._backends.torch.rules.families import Rule, Same, Step

ROWS = 2
SLACK = 256  # roundings that may lie between a rule and torch
SEED = 20_011

Where = tuple[torch.dtype, str]

_HELD: dict[Where, dict[tuple[Any, ...], bool]] = {}
"""What was found out, by kind of numbers and device, then by rule, inputs and setting."""

_REFUTED: set[Rule] = set()

PASSING: set[type] = set()
"""Kinds of nodes that were seen to pass a gradient on as it is."""


def known_of(where: Where) -> dict[tuple[Any, ...], bool]:
    """What is known of rules for these numbers, on this kind of device."""
    return _HELD.setdefault(where, {})


def holds(steps: Sequence[Step]) -> bool | None:
    """Whether a rule agrees with torch on such a node, whose steps these are; None where that could not be seen."""
    rule, node = steps[0][:2]
    if rule in _REFUTED or not rule.serves([step[3] for step in steps]):
        return False
    found = _agrees(steps)
    if found is False:
        _REFUTED.add(rule)
    elif found and type(rule) is Same:
        PASSING.add(type(node))
    return found


def forget() -> None:
    """Nothing is proven any more."""
    PASSING.clear()
    _HELD.clear()
    _REFUTED.clear()


def _agrees(steps: Sequence[Step]) -> bool | None:
    """None where torch cannot be asked, or where its answer is not finite and tells nothing."""
    chance = np.random.default_rng(SEED)
    _, node, slots, *_ = steps[0]
    outputs = [(0, slots)] if type(slots) is int else slots
    batch = Batch(ROWS, [False] * (1 + max([*[slot for _, slot in outputs], *[step[4] for step in steps]])))
    seeds: dict[int, Tensor] = {}
    for output, slot in outputs:
        expected = node._input_metadata[output]
        numbers = torch.from_numpy(np.asarray(chance.standard_normal((ROWS, *expected.shape))))
        batch.held[slot] = seeds[output] = numbers.to(expected.device, expected.dtype)
    try:
        with torch.no_grad():
            plain = [_pulled(steps, seeds, row) for row in range(ROWS)]
            batch.carry(steps)
    except Exception:  # torch refuses, or the rule does: nothing is proven
        return None
    for row, expected in enumerate(plain):
        for slot, said in expected.items():
            verdict = _close(batch.held[slot][row], said)
            if not verdict:
                return verdict
    return True


def _pulled(steps: Sequence[Step], seeds: dict[int, Tensor], row: int) -> dict[int, Tensor]:
    """One row through one node by its own backward; the engine, too, sums up what was stretched on the way there."""
    node = steps[0][1]
    found = node(*[seeds[k][row] if k in seeds else None for k in range(len(node._input_metadata))])
    found = found if isinstance(found, tuple) else (found,)
    pulled: dict[int, Tensor] = {}
    for _, _, _, k, slot, (source, output), _ in steps:
        said = found[k].sum_to_size(source._input_metadata[output].shape).reshape(-1)
        pulled[slot] = pulled[slot] + said if slot in pulled else said
    return pulled


def _close(ruled: Tensor, plain: Tensor) -> bool | None:
    ruled = ruled.reshape(plain.shape)
    if ruled.dtype is not plain.dtype:  # the engine would cast what arrives
        return None
    if not plain.numel():
        return True
    size = float(plain.abs().max())
    if not size < float("inf"):  # a NaN is not smaller either
        return None
    off = float((ruled.double() - plain.double()).abs().max())
    return off <= SLACK * torch.finfo(plain.dtype).eps * size or off == 0.0
