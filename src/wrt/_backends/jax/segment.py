"""The stretch between some Values and another one, as a function of what the run was given: plain data, compiled once.

A `Template` holds no arrays. Two recordings of the same code give equal templates, so the second one compiles nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from wrt._backends.jax.program import Op, Step, Var, ancestors, comparable

Arrays = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Template:
    """y as a function of xs, and xs as functions of the leaves: what was given, and constants.

    `before` are the operations that xs are made by. An x that lies behind another x is moved, not replaced.
    """

    before: tuple[Step, ...]
    steps: tuple[Step, ...]
    xs: tuple[int, ...]
    behind: tuple[bool, ...]
    leaves: tuple[int, ...]
    y: int
    avals: tuple[Any, ...]
    """Shapes and types of xs and leaves."""
    aval_of_y: tuple[Any, Any]
    _hash: int = field(init=False, compare=False, repr=False, default=0)

    def __post_init__(self) -> None:
        parts = (self.before, self.steps, self.xs, self.behind, self.leaves, self.y, self.avals)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        return self._hash  # looked up for every question, over all operations of a run

    def start(self, leaves: Arrays) -> tuple[list[Any], dict[int, Any]]:
        """The arrays of xs (of one behind another x: no move), and everything that is known before y is computed."""
        arrays = dict(zip(self.leaves, leaves, strict=True))
        for step in self.before:
            step.run(arrays)
        xs = []
        for k, behind, (shape, dtype) in zip(self.xs, self.behind, self.avals[: len(self.xs)], strict=True):
            xs.append(jax.numpy.zeros(shape, dtype) if behind else arrays[k])
        return xs, arrays

    def finish(self, xs: Arrays, known: dict[int, Any]) -> Any:
        """y from xs."""
        arrays = dict(known)
        moved = {k: x for k, x, behind in zip(self.xs, xs, self.behind, strict=True) if behind}
        arrays.update((k, x) for k, x, behind in zip(self.xs, xs, self.behind, strict=True) if not behind)
        for step in self.steps:
            step.run(arrays)
            for k in step.outputs:
                if k in moved:
                    arrays[k] = arrays[k] + moved[k]
        return arrays[self.y]


@dataclass(frozen=True, slots=True)
class Segment:
    """A template with the Vars that its leaves stand for."""

    template: Template
    leaves: tuple[Var, ...]

    @classmethod
    def of(cls, y: Var, xs: Sequence[Var], carrying: Sequence[Op]) -> Segment:
        """`carrying` are the operations that a derivative passes between xs and y."""
        carries = {id(op) for op in carrying}
        behind = {x for x in xs if x.op is not None and id(x.op) in carries}
        first = [x for x in xs if x not in behind]
        ends = frozenset(first)
        before = _leading_to(first, frozenset(), frozenset())
        done = {id(op) for op in before}
        after = [op for op in _leading_to([y], ends, carries) if id(op) in carries or id(op) not in done]
        numbers: dict[Var, int] = {}

        def number(var: Var) -> int:
            return numbers.setdefault(var, len(numbers))

        def step(op: Op, moving: set[Var]) -> Step:
            places = [[number(v) for v in several] for several in (op.inputs, op.outputs)]
            return Step.of(op, places, [numbers[v] for v in op.inputs if v in moving])

        at = tuple(number(x) for x in xs)
        moving = {*xs, *(v for op in carrying for v in op.outputs)}
        earlier = tuple(step(op, set()) for op in before)
        steps = tuple(step(op, set() if id(op) in carries else moving) for op in after)
        last = number(y)
        made = {v for op in (*before, *after) for v in op.outputs}
        leaves = tuple(v for v in numbers if v not in made)
        avals = tuple((v.aval.shape, v.aval.dtype) for v in (*xs, *leaves))
        order = tuple(numbers[v] for v in leaves)
        template = Template(earlier, steps, at, tuple(x in behind for x in xs), order, last, avals, (y.aval.shape, y.aval.dtype))
        return cls(template, leaves)


def _leading_to(wanted: Iterable[Var], ends: frozenset[Var], carries: frozenset[int] | set[int]) -> list[Op]:
    """The operations that lead to some Vars from `ends` and leaves, in order.

    What had an effect is not run again: what it gave in the run stands for it, unless a derivative passes it.
    """
    seen: dict[int, Op] = {}
    waiting = [var for var in wanted if var not in ends]
    while waiting:
        op = waiting.pop().op
        if op is None or id(op) in seen or (op.happened_once and id(op) not in carries):
            continue
        seen[id(op)] = op
        waiting.extend(v for v in op.inputs if v not in ends)
    return sorted(seen.values(), key=lambda op: op.number)


def structure(y: Var) -> tuple[Hashable, dict[Var, int]]:
    """Everything that led to y, without its numbers; and by which number each array is known there."""
    ops = ancestors(y)
    numbers: dict[Var, int] = {}
    told = tuple(
        (op.primitive, comparable(op.params), tuple(numbers.setdefault(v, len(numbers)) for v in (*op.inputs, *op.outputs)))
        for op in ops
    )
    avals = tuple((v.aval.shape, str(v.aval.dtype)) for v in numbers)
    return (told, avals, numbers.get(y, -1), y.aval.shape, str(y.aval.dtype)), numbers
