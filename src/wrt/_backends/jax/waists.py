"""The arrays between x and y as plain data: what each is made from, and what a pass through it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wrt._backends.jax import compat
from wrt._backends.jax.program import Op, Var
from wrt._core.flow import Flow

if TYPE_CHECKING:
    from wrt._backends.jax.sweep import JaxLinear

LOOKED_AT = 3  # rows, before anything is called full
FULL = 0.5  # of their entries that can be nonzero


def flow(linear: JaxLinear) -> Flow | None:
    """Of y with respect to a single x; operations inside of loops and calls count for the array that these give.

    None where nothing leads there, or where the operations tell that most entries are zero: lines share passes then.
    """
    if len(linear.xs) != 1 or not linear.live or _sparse(linear):
        return None
    (x,), y = linear.xs, linear.y
    carried = {x.key, *(v for op in linear.ops for v in op.outputs)}
    order: list[Var] = [y.key]
    number: dict[Var, int] = {y.key: 0}
    made_from: list[list[int]] = []
    for var in order:  # grows while it is walked
        sources = [] if var is x.key or var.op is None else var.op.sources((var,))
        made = dict.fromkeys(v for v in sources if v in carried)
        for source in made:
            if source not in number:
                number[source] = len(order)
                order.append(source)
        made_from.append([number[source] for source in made])
    work = [(0.0, 0.0) if var.op is None or var is x.key else _work_of(var.op) for var in order]
    return Flow(
        [math.prod(var.aval.shape) for var in order],
        made_from,
        [products for products, _ in work],
        [elements for _, elements in work],
        (number[x.key],),
        False,
        linear.push_cost,
        lambda tensor: linear.record.value_of(order[tensor]) if order[tensor].aval.dtype == y.dtype else None,
        lambda: None,
    )


def _sparse(linear: JaxLinear) -> bool:
    rows = np.unique(np.linspace(0, linear.y.size - 1, LOOKED_AT).astype(np.int64))
    marks = linear.reach(rows)
    return marks is not None and bool(marks.mean() < FULL)


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
