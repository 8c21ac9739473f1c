"""The input is not used at all."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "unused_input",
    family="flat",
    means="the input is not used at all",
    remedy="use it where the output is computed, or remove it",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5], requires_grad=True)
    y = (w * 3).sum()

print(wrt.why(y, x)[0])
""",
)
