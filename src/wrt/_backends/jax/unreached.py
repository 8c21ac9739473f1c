"""Why nothing flows: every operation of the run is known, so "no dependence" is proven and a cut has a line."""

from __future__ import annotations

from collections.abc import Sequence

from wrt._backends.jax import compat
from wrt._backends.jax.program import Op, Var, ancestors, carried_into, cuts_inside, place_of
from wrt._backends.jax.recorder import Left
from wrt.errors import GradientCut, NoPath


def verdict(y: Var, x: Var, left: Sequence[Left], ops: Sequence[Op], decided: Sequence[Op]) -> bool | Exception:
    """True where y does not depend on x; otherwise the error that names the line.

    `ops` are those of the run; `decided` were replaced by what they did: x may have decided what that was.
    """
    cut = first_cut(y, x)
    if cut is not None:
        return GradientCut(
            "no gradient path from x to y",
            f"{told(cut)} goes on with the value and stops the gradient",
            _remedy(cut),
        )
    for op in decided:  # of a branch the slope is that of the one that was taken
        if op.name == "while" and any(depends(v, x) for v in op.inputs) and any(depends(y, v) for v in op.outputs):
            return GradientCut(
                "no gradient path from x to y",
                f"{told(op)} runs as often as numbers made of x decide: no derivative follows a decision",
                "ask for the derivative by what the loop computes with",
            )
    done = max((op.number for op in ancestors(y)), default=len(ops))
    for op in ops:
        names = compat.names_inside(op.primitive, op.params)
        if any("callback" in name for name in names) and any(depends(v, x) for v in op.inputs):
            return NoPath(
                "no gradient path from x to y",
                f"{told(op)} hands a value made of x to Python, which runs when it likes; where Python took it is not known",
                "compute y by operations of JAX alone, without a callback, or ask for another x",
            )
    for one in left:
        if one.at <= done and depends(one.var, x):
            return NoPath(
                "no gradient path from x to y",
                f"a value computed from x left JAX at {one.where} ({one.how}); where Python took it is not known",
                "keep it an array of JAX there: no float(), .item() or numpy on the way",
            )
    return True


def is_stacked(var: Var) -> bool:
    """Whether an array was put together from pieces of which one is computed from another: by a scan, or written out."""
    op = var.op
    if op is not None and op.name == "scan":
        first, many = compat.scan_counts(op.params)
        return var.output >= many and bool(carried_into(op.params, var.output).intersection(range(first, first + many)))
    pieces = [_unmoved(v) for v in op.inputs] if op is not None and op.name in ("concatenate", "stack") else []
    return any(a is not b and depends(a, b) for b in pieces for a in pieces)


def _unmoved(var: Var) -> Var:
    """The array whose numbers these are, in another shape."""
    while var.op is not None and var.op.name in ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "copy"):
        var = var.op.inputs[0]
    return var


def depends(y: Var, x: Var) -> bool:
    """Whether y is computed from x at all, gradient or not."""
    reached = {x}
    for op in ancestors(y):
        if any(v in reached for v in op.inputs):
            reached.update(op.reached(reached, gradient=False))
    return y in reached


def first_cut(y: Var, x: Var) -> Op | None:
    """The first operation on the value's path from x to y that stops the gradient."""
    if not depends(y, x):
        return None
    carrying = {x}
    for op in ancestors(y):
        if any(v in carrying for v in op.inputs):
            smooth = [v for v in op.reached(carrying) if v.differentiable]
            lost = [v for v in op.reached(carrying, gradient=False) if v not in smooth]
            if any(v is y or depends(y, v) for v in lost):
                return op
            carrying.update(smooth)
    return None


def told(op: Op) -> str:
    """`train.py:12  h = stop_gradient(enc(x))`; of a loop, the line inside it that stops the gradient."""
    inside = next(cuts_inside(op.params), None) if op.name in compat.CONTROL else None
    where = op.where if inside is None else place_of(inside.source_info) or op.where
    if where is None or not where.text:
        return f"{op.name} at {where or 'an unknown line'}"
    return f"{where}  {where.text}"


def _remedy(op: Op) -> str:
    inside = next(cuts_inside(op.params), None) if op.name in compat.CONTROL else None
    if op.name == "stop_gradient" or inside is not None:
        return "remove what stops it, or ask for d(y) / d(...) of the value after it"
    made = op.outputs[0].aval.dtype
    return f"{op.name} gives {made}, which has no derivative; use a smooth stand-in, or ask from after it"
