"""A copy of the numbers, without their history."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "retensor",
    family="cut",
    means="a copy of the numbers, without their history",
    remedy="use the tensor itself, .clone() for a copy, torch.stack for a list of tensors",
    stops=ops("tensor new_tensor as_tensor asarray scalar_tensor constant Const FloatTensor"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    h = torch.tensor(x * 2)
    y = (h * w).sum()

print(wrt.why(y, x)[0])
""",
)
