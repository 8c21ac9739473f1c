"""First answers without a trace: tangents and cotangents through the operations of the run, in NumPy.

JAX takes about a millisecond to differentiate one operation before any number is known, and most questions are asked once.
What these few rules give is proven by differences of the run itself, in double precision, which know nothing of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wrt._backends.jax.interpreted import slopes
from wrt._backends.jax.interpreted.evaluate import PER_NUMBER, RULES, moved
from wrt._backends.jax.kinds import LINEAR, Marked, NoRule, folded
from wrt._backends.jax.kinds import RULES as BACK
from wrt._core.pattern import Way

if TYPE_CHECKING:
    from wrt._backends.jax.program import Op, Var

Array = Any
Numbers = dict[Any, Array]

LAID_OUT = frozenset({"broadcast_in_dim", "convert_element_type", "reshape"})
TRACED = 1e-3  # seconds that JAX takes to trace the derivative of one operation, about
STEP = 2.0**-17  # of a difference: the third derivative counts by its square, roundoff of doubles by its inverse


class Lean(NamedTuple):
    """The operations from x to y, all of them known, and the numbers that they read."""

    ops: Sequence[Op]
    y: Var
    x: Var
    given: Numbers

    def swept(self, way: Way, seeds: Array) -> Array:
        """(k, n) for cotangents of y, (k, m) for tangents of x."""
        with np.errstate(all="ignore"):  # what is not finite does not pass the proof
            known = _ran(self.ops, self.given)
            carried = (_back if way == "pull" else _forward)(self, known, seeds)
        made = carried.get(self.x if way == "pull" else self.y)
        if made is None:
            raise NoRule("nothing leads from x to y")
        return made.reshape(len(seeds), -1)

    def differences(self, tangent: Array) -> Array:
        """The tangent of y, (m,), by central differences in double precision: two runs, no rule of a derivative."""
        wide = {var: _wide(array) for var, array in self.given.items()}
        x = wide[self.x]
        step = STEP * max(1.0, float(np.abs(x).max()))
        with np.errstate(all="ignore"):
            ends = [_ran(self.ops, wide | {self.x: x + way * tangent}, wide=True)[self.y] for way in (step, -step)]
            return ((ends[0] - ends[1]) / (2 * step)).reshape(-1)


def lean(ops: Sequence[Op], y: Var, x: Var, value: Callable[[Var], Any], lines: int) -> Lean | None:
    """None where an operation has no rule here, or where JAX's own trace would be as quick."""
    made = {v for op in ops for v in op.outputs}
    if x in made or not all(_has_rule(op) for op in ops):
        return None
    numbers = lines * sum(math.prod(v.aval.shape) for v in made)
    if numbers * 2 * PER_NUMBER > len(ops) * TRACED:
        return None
    given: Numbers = {}
    for var in (v for op in ops for v in op.inputs if v not in made):
        _read(var, value, given)
    return Lean(ops, y, x, given)


def _read(var: Var, value: Callable[[Var], Any], known: Numbers) -> Array:
    """A number of the run; a constant that is only laid out anew is not sent to a device and back."""
    if var not in known:
        op = var.op
        laid = None
        if op is not None and op.name in LAID_OUT:
            given = [_read(v, value, known) for v in op.inputs]
            laid = moved(op.primitive, op.params, given, [v.aval for v in op.outputs])
        known[var] = np.asarray(value(var)) if laid is None else laid[0]
    return known[var]


def _has_rule(op: Op) -> bool:
    """Whether it is known here; in double precision differences are less exact than what they would prove."""
    if any(v.aval.dtype != np.float32 for v in op.outputs):
        return False
    if op.name == "convert_element_type":
        return bool(op.inputs[0].aval.dtype == np.float32)
    return op.name in LINEAR or op.name in slopes.RULES


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _ran(ops: Sequence[Op], given: Numbers, *, wide: bool = False) -> Numbers:
    """Every number of the run, as it was or in double precision."""
    known = dict(given)
    for op in ops:
        inputs = [known[v] for v in op.inputs]
        found = inputs if wide and op.name == "convert_element_type" else _applied(op, inputs)
        known.update(zip(op.outputs, found, strict=True))
    return known


def _applied(op: Op, inputs: Sequence[Array]) -> Sequence[Array]:
    found: Any = RULES[op.name](*inputs, **op.params)
    return found if op.primitive.multiple_results else [found]


def _forward(run: Lean, known: Numbers, seeds: Array) -> Numbers:
    """Tangents of everything that x moves, (k, *shape)."""
    moved: Numbers = {run.x: seeds}
    for op in run.ops:
        tangents = [moved.get(v) for v in op.inputs]
        if all(tangent is None for tangent in tangents):
            continue
        found = _moved(op, tangents, known) if op.name in slopes.RULES else _linear(op, tangents, len(seeds))
        moved.update(zip(op.outputs, found, strict=True))
    return moved


def _moved(op: Op, tangents: Sequence[Array | None], known: Numbers) -> list[Array]:
    (made,) = op.outputs
    total: Any = None
    for tangent, slope in zip(tangents, _slopes(op, known), strict=True):
        if tangent is not None:
            if tangent.ndim == 1:  # of a single number: the same everywhere
                tangent = tangent.reshape(-1, *[1] * len(made.aval.shape))
            part = tangent * slope
            total = part if total is None else total + part
    return [np.broadcast_to(total, (len(total), *made.aval.shape)).astype(made.aval.dtype, copy=False)]


def _linear(op: Op, tangents: Sequence[Array | None], count: int) -> list[Array]:
    """The operation itself, on one tangent after another; an input that does not move has none."""
    still = [np.zeros(v.aval.shape, np.float32) if t is None else None for v, t in zip(op.inputs, tangents, strict=True)]
    rows = []
    for k in range(count):
        rows.append(_applied(op, [zero if t is None else t[k] for zero, t in zip(still, tangents, strict=True)]))
    return [np.stack(column) for column in zip(*rows, strict=True)]


def _back(run: Lean, known: Numbers, seeds: Array) -> Numbers:
    """Cotangents of everything that y reads, (k, *shape)."""
    pulled: Numbers = {run.y: seeds}
    moving = {run.x} | {v for op in run.ops for v in op.outputs}
    for op in reversed(run.ops):
        results = [pulled.pop(v, None) for v in op.outputs]
        if all(one is None for one in results):
            continue
        wanted = [v in moving for v in op.inputs]
        for var, part in zip(op.inputs, _pulled(op, wanted, results, known), strict=True):
            if part is not None and var in moving:
                before = pulled.get(var)
                pulled[var] = part if before is None else before + part
    return pulled


def _pulled(op: Op, wanted: list[bool], results: list[Array | None], known: Numbers) -> list[Array | None]:
    if op.name not in slopes.RULES:
        shapes = [tuple(v.aval.shape) for v in op.inputs]
        name = "copy" if op.name == "convert_element_type" else op.name
        return BACK[name](Marked(op.name, op.params, shapes, wanted, results, _no_number))
    (cotangent,) = results
    return [
        folded(cotangent * slope, v.aval.shape).astype(v.aval.dtype, copy=False) if asked else None
        for v, slope, asked in zip(op.inputs, _slopes(op, known), wanted, strict=True)
    ]


def _slopes(op: Op, known: Numbers) -> slopes.Slopes:
    return slopes.slopes(op.name, known[op.outputs[0]], [known[v] for v in op.inputs], op.params)


def _no_number(k: int) -> Any:
    raise NoRule("no operation here is told its places by another")
