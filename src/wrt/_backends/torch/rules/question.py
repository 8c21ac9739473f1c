"""When rules answer: only where everything on the way is plainly known."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wrt._backends.torch import compat
from wrt._backends.torch.hooks import may_act
from wrt._backends.torch.rules.program import Program, program
from wrt._backends.torch.sharded import is_sharded
from wrt._core.value import Value


def program_of(y: Value, xs: Sequence[Value]) -> Program | None:
    """The rules from y to every x; None where the engine has to be asked. Looked for once for each question."""
    if _watched():
        return None
    moment, ends = y.key, tuple([x.key for x in xs])
    if moment.program is None or moment.program[0] != ends:
        moment.program = ends, _found(y, xs)
        _count(y, xs)
    found: Program | None = moment.program[1]
    return found


def put_aside(y: Value) -> None:
    """The rules for the question that was asked last met something they do not know."""
    moment = y.key
    if moment.program is not None:
        moment.program = moment.program[0], None


def _count(y: Value, xs: Sequence[Value]) -> None:
    """How many operations led to y was seen on the way to a leaf."""
    moment = y.key
    found: Program | None = moment.program[1]
    if found is not None and all(x.key.leaf is not None for x in xs):
        moment.operations = found.operations


def _watched() -> bool:
    """Whether somebody may look at each step of the engine, or changes what operations do.

    Hooks act on what passes; anomaly mode names the operation that failed; under a transform of `torch.func` or a
    dispatch mode an operation is another one.
    """
    return may_act() or torch.is_anomaly_enabled() or compat.is_transformed()


def _found(y: Value, xs: Sequence[Value]) -> Program | None:
    start, ends, dtype = y.key.edge, [x.key.edge for x in xs], y.dtype
    if start is None or None in ends or not dtype.is_floating_point:
        return None
    for x in xs:
        if x.dtype is not dtype or is_sharded(x.key.tensor()):
            return None
    return program((start.node, start.output_nr), [(end.node, end.output_nr) for end in ends])
