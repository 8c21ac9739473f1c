"""A cast or a move made a copy that is no leaf."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "leaf_moved_by_to_device_or_cast",
    family="wrong",
    means="a cast or a move made a copy that is no leaf",
    remedy="give dtype= and device= with requires_grad=True in one call, or requires_grad_() after the cast",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0], requires_grad=True).double()
    y = (x**2).sum()
    y.backward()

print(wrt.why(y, x)[0])
""",
)
