"""The input was followed only after it had been used."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "late_requires_grad",
    family="modes",
    means="the input was followed only after it had been used",
    remedy="move this line before the first use of {x}",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    x = torch.ones(3)
    y = (x * w).sum()
    x.requires_grad_()

print(wrt.why(y, x)[0])
""",
)
