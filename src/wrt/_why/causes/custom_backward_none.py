"""A custom backward returns None for this input."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "custom_backward_none",
    family="wrong",
    means="a custom backward returns None for this input",
    remedy="return the derivative for this input",
    case="""\
import torch
import wrt


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, x):
        ctx.save_for_backward(x)
        return w * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x, None


with wrt.record():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    y = Product.apply(w, x).sum()

print(wrt.why(y, x)[0])
""",
)
