"""The loss was made a new leaf: requires_grad was set on a result that had lost its graph."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "fresh_leaf_loss",
    family="cut",
    means="the loss was made a new leaf: requires_grad was set on a result that had lost its graph",
    remedy="remove it, and repair the line that cuts the path",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    y = (x.detach() ** 2).sum()
    y.requires_grad_()

print(wrt.why(y, x)[0])
""",
)
