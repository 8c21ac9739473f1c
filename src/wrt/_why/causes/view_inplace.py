"""A view was written in place where autograd cannot follow."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "view_inplace",
    family="refused",
    means="a view was written in place where autograd cannot follow",
    remedy="write v = v * 3 instead of v *= 3, or .clone() it first",
    raised=(
        "is a view and is being modified inplace",
        "leaf Variable that requires grad is being used in an in-place",
        "a view of a leaf Variable",
        "leaf variable has been moved into the graph interior",
    ),
    case="""\
import torch
import wrt

try:
    with wrt.record():
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        x *= 2
        y = x.sum()
except RuntimeError as error:
    print(wrt.why(error)[0])
""",
)
