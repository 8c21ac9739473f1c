"""Which elements of x some elements of y can depend on: marks that travel back through the operations of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from wrt._backends.jax import compat
from wrt._backends.jax.kinds import RULES, Marked, NoRule
from wrt._backends.jax.program import Op, Var
from wrt._core.index import Positions
from wrt._core.protocol import Marks

MOST = 2**26  # marks of one array; more of them are not worth the memory
CUSTOM = frozenset({"custom_jvp_call", "custom_vjp_call"})
"""Functions with a derivative of the user's own: it is taken to need no more than the function does."""


class Step(NamedTuple):
    """An operation of the run, or an equation of a jaxpr."""

    name: str
    params: dict[str, Any]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    value: Callable[[Any], Any]


def unknown(var: Any) -> Any:
    raise NoRule("numbers inside of a function")


def reach(ops: Iterable[Op], y: Var, x: Var, rows: Positions, value: Callable[[Var], Any]) -> Marks | None:
    """(rows, x.size): where these elements of y can depend on x; None where an operation on the way has no rule.

    `value` tells the numbers of the run: which elements a gather takes.
    """
    marks = np.zeros((len(rows), int(np.prod(y.aval.shape))), dtype=bool)
    marks[np.arange(len(rows)), rows] = True
    steps = [Step(op.name, op.params, op.inputs, op.outputs, value) for op in ops]
    try:
        found = _back(steps, {y: marks.reshape(len(rows), *y.aval.shape)}, {x}).get(x)
    except NoRule:
        return None
    return np.zeros((len(rows), int(np.prod(x.aval.shape))), dtype=bool) if found is None else found.reshape(len(rows), -1)


def knows_all(ops: Iterable[Op]) -> bool:
    """Whether every operation is one of JAX's own, with a rule here: no derivative of the user's own."""
    return all(op.name in RULES for op in ops)


def _back(steps: list[Step], marked: dict[Any, Marks], ends: set[Any]) -> dict[Any, Marks]:
    """Marks of everything on the way, once all that reads it has been seen."""
    asked = ends | {v for step in steps for v in step.outputs}
    for step in reversed(steps):
        results = [marked.pop(v, None) for v in step.outputs]
        if all(marks is None for marks in results):
            continue
        wanted = [not isinstance(v, compat.Literal) and v in asked for v in step.inputs]
        for var, marks in zip(step.inputs, _one_back(step, wanted, results), strict=True):
            if marks is not None and not isinstance(var, compat.Literal) and var in asked:
                before = marked.get(var)
                marked[var] = marks if before is None else before | marks
    return marked


def _one_back(step: Step, wanted: list[bool], results: list[Marks | None]) -> list[Marks | None]:
    count = next(len(marks) for marks in results if marks is not None)
    if step.name in CUSTOM or step.name in compat.INLINED:
        return _inside(step, wanted, results)
    shapes = [tuple(v.aval.shape) for v in step.inputs]
    if step.name not in RULES or count * max((int(np.prod(shape)) for shape in shapes), default=0) > MOST:
        raise NoRule(step.name)
    number = lambda k: np.asarray(step.value(step.inputs[k]))
    return RULES[step.name](Marked(step.name, step.params, shapes, wanted, results, number))


def _inside(step: Step, wanted: list[bool], results: list[Marks | None]) -> list[Marks | None]:
    """Through the operations that a call is made of."""
    jaxpr, _ = compat.sub_jaxpr(step.params)
    inner = [Step(e.primitive.name, e.params, tuple(e.invars), tuple(e.outvars), unknown) for e in jaxpr.eqns]
    marked: dict[Any, Marks] = {}
    for var, marks in zip(jaxpr.outvars, results, strict=True):
        if marks is not None and not isinstance(var, compat.Literal):
            marked[var] = marked[var] | marks if var in marked else marks
    ends = {v for v, asked in zip(jaxpr.invars, wanted, strict=True) if asked}
    found = _back(inner, marked, ends)
    return [found.get(v) for v in jaxpr.invars]
