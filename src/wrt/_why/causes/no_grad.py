"""Computed while gradients were switched off."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "no_grad",
    family="modes",
    means="computed while gradients were switched off",
    remedy="move the line out of torch.no_grad(); to freeze a model use requires_grad_(False) on its parameters",
    raised=("gradients are switched off here",),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    with torch.no_grad():
        h = x * 2
    y = (h * w).sum()

print(wrt.why(y, x)[0])
""",
)
