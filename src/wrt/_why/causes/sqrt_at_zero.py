"""Sqrt at zero."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "sqrt_at_zero",
    family="singular",
    means="sqrt at zero",
    remedy="write sqrt(s + eps), or norm, whose slope at zero is set to 0",
    flattens=ops("std std_mean reduce_std"),
    breaks=ops("sqrt rsqrt std std_mean Sqrt Rsqrt reduce_std"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    y = (x - x).pow(2).sum().sqrt()

print(wrt.why(y, x)[0])
""",
)
