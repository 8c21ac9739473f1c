"""A division by zero."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "div_zero",
    family="singular",
    means="a division by zero",
    remedy="guard the divisor: where(d == 0, eps, d)",
    breaks=ops(
        "div true_divide divide truediv rtruediv reciprocal remainder fmod RealDiv Div Reciprocal rdiv rem xdivy "
        "DivNoNan inverse inv solve"
    ),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    y = (w / (x - x)).sum()

print(wrt.why(y, x)[0])
""",
)
