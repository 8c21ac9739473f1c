"""A tensor needed by backward was changed in place."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "inplace_saved_tensor",
    family="refused",
    means="a tensor needed by backward was changed in place",
    remedy="write h = h + ... instead of h += ..., or .clone() it before the change",
    raised=("modified by an inplace operation", "a tensor that backward needs was changed in place"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    h = torch.sigmoid(x)
    h += 1
    y = h.sum()

print(wrt.why(y, x)[0])
""",
)
