"""The output does not change with the input although it uses it."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "invariant_output",
    family="flat",
    means="the output does not change with the input although it uses it",
    remedy="use a loss that does change, for example weighted or squared before the sum",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    y = torch.softmax(x, 0).sum()

print(wrt.why(y, x)[0])
""",
)
