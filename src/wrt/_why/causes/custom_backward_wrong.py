"""A custom backward disagrees with its forward."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "custom_backward_wrong",
    family="wrong",
    means="a custom backward disagrees with its forward",
    remedy="correct the backward; wrt.check(f, x) shows element by element where it differs",
    raised=("returned an incorrect number of gradients", "returned an invalid gradient at index"),
    case="""\
import torch
import wrt


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * x**2


with wrt.record():
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    y = Cube.apply(x).sum()

print(wrt.why(y, x)[0])
""",
)
