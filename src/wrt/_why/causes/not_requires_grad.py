"""The input does not require grad."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "not_requires_grad",
    family="modes",
    means="the input does not require grad",
    remedy="call {x}.requires_grad_() before it is used",
    raised=("does not require grad and does not have a grad_fn", "does not require grad, so torch kept no"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    x = torch.ones(3)
    y = (x * w).sum()

print(wrt.why(y, x)[0])
""",
)
