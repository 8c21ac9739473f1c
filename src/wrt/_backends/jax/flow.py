"""The graph between y and x for the planner: what each array is made from, and what a pass through it costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from wrt._backends.jax import compat
from wrt._backends.jax.arrays import on_cpu
from wrt._backends.jax.program import Op, Var
from wrt._backends.jax.thresholds import PUSH_COST_IN_PULLS
from wrt._core.flow import Flow, leads_unmixed
from wrt._core.thresholds import NEAR_OPERATIONS
from wrt._core.value import Value

SUMS = frozenset({"add", "add_any"})


def flow(y: Var, xs: Sequence[Var], ops: Sequence[Op], value_of: Callable[[Var], Value]) -> Flow | None:
    """Operations inside of loops and calls count for the array that these give; None where nothing leads there."""
    carried = {*xs, *(v for op in ops for v in op.outputs)}
    ends = frozenset(xs)
    order: list[Var] = [y]
    number: dict[Var, int] = {y: 0}
    made_from: list[list[int]] = []
    for var in order:  # grows while it is walked
        sources = [] if var in ends or var.op is None else var.op.sources((var,))
        made = dict.fromkeys(v for v in sources if v in carried)
        for source in made:
            if source not in number:
                number[source] = len(order)
                order.append(source)
        made_from.append([number[source] for source in made])
    inner = tuple(number[x] for x in xs if x in number)
    if not inner or not made_from[0]:
        return None
    work = [(0.0, 0.0) if var.op is None or var in ends else _work_of(var.op) for var in order]
    mixing = frozenset(k for k, var in enumerate(order) if made_from[k] and _mixes(var.op, carried))
    return Flow(
        [math.prod(var.aval.shape) for var in order],
        made_from,
        [products for products, _ in work],
        [elements for _, elements in work],
        inner,
        not leads_unmixed(made_from, mixing, set(inner)),
        PUSH_COST_IN_PULLS,
        lambda tensor: value_of(order[tensor]) if order[tensor].aval.dtype == y.aval.dtype else None,
        mixing=mixing,
        accelerated=not on_cpu(),
        is_sum=lambda tensor: _is_sum(order[tensor].op, made_from[tensor]),
    )


def widest(y: Var) -> int:
    """Numbers in the widest array among those that the last operations before y made."""
    found, waiting, seen = math.prod(y.aval.shape), [y], {y}
    for var in waiting:  # grows while it is walked
        found = max(found, math.prod(var.aval.shape))
        for source in () if var.op is None or len(waiting) > NEAR_OPERATIONS else var.op.inputs:
            if source.differentiable and source not in seen:
                seen.add(source)
                waiting.append(source)
    return found


def last_weights(y: Var, ops: Sequence[Op], xs: Sequence[Var], value: Callable[[Var], Any]) -> tuple[Var, Any] | None:
    """Where y is a matrix times another array that leads to x: that array, and the matrix as a batch of its cotangents."""
    carried = {*xs, *(v for op in ops for v in op.outputs)}
    if y.op is None or not _mixes(y.op, carried) or any(v.aval.dtype != y.aval.dtype for v in y.op.inputs):
        return None
    (contracted, _), side = y.op.params["dimension_numbers"], 0 if y.op.inputs[0] in carried else 1
    matrix, h = y.op.inputs[1 - side], y.op.inputs[side]
    pairs = sorted(zip(contracted[side], contracted[1 - side], strict=True))  # in the order of h's axes
    inner = [of_matrix for _, of_matrix in pairs]
    order = [k for k in range(len(matrix.aval.shape)) if k not in inner] + inner
    return h, value(matrix).transpose(order).reshape(-1, *h.aval.shape)


def _mixes(op: Op | None, carried: set[Var]) -> bool:
    """A matrix times one vector that leads to x: each number that comes out depends on every number that goes in."""
    if op is None or op.name != "dot_general" or sum(v in carried for v in op.inputs) != 1:
        return False
    contracted, batch = op.params["dimension_numbers"]
    side = 0 if op.inputs[0] in carried else 1
    shape = op.inputs[side].aval.shape
    return not any(batch) and all(k in contracted[side] for k, n in enumerate(shape) if n > 1)


def _is_sum(op: Op | None, sources: list[int]) -> bool:
    """Whether an array is a + b, both of them of its shape and type, and both leading to x."""
    if op is None or op.name not in SUMS or len(sources) != 2:
        return False
    (made,) = op.outputs
    return all((v.aval.shape, v.aval.dtype) == (made.aval.shape, made.aval.dtype) for v in op.inputs)


def _work_of(op: Op) -> tuple[float, float]:
    return _work(op.name, op.params, [v.aval for v in op.inputs], [v.aval for v in op.outputs])


def _work(name: str, params: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[float, float]:
    """Multiplications of one pass, and numbers that simpler operations touch."""
    made = sum(math.prod(aval.shape) for aval in outputs)
    if name == "dot_general":
        ((contracted, _), _) = params["dimension_numbers"]
        return float(made * math.prod(inputs[0].shape[axis] for axis in contracted)), 0.0
    if name == "conv_general_dilated":
        kernel = inputs[1].shape
        return float(made * math.prod(kernel) / kernel[params["dimension_numbers"].rhs_spec[0]]), 0.0
    products, elements = 0.0, float(made)
    for jaxpr in compat.inner_jaxprs(params):
        for equation in jaxpr.eqns:
            several = equation.invars, equation.outvars
            one = _work(equation.primitive.name, equation.params, *([v.aval for v in each] for each in several))
            products, elements = products + one[0], elements + one[1]
    times = params.get("length", 1)
    return products * times, elements * times
