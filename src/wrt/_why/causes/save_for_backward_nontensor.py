"""Save_for_backward was given something that is no tensor."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "save_for_backward_nontensor",
    family="refused",
    means="save_for_backward was given something that is no tensor",
    remedy="keep numbers and shapes as attributes: ctx.n = n",
    raised=("save_for_backward can only save variables",),
    case="""\
import torch
import wrt

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x, k)
        return x * k

    @staticmethod
    def backward(ctx, g):
        x, k = ctx.saved_tensors
        return g * k, None

try:
    with wrt.record():
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        y = Scale.apply(x, 3.0).sum()
except (RuntimeError, TypeError) as error:
    print(wrt.why(error)[0])
""",
)
