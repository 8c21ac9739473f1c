"""An operation whose derivative is zero or undefined everywhere."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "no_derivative",
    family="discrete",
    means="an operation whose derivative is zero or undefined everywhere",
    remedy="use a smooth operation in its place",
    flattens=ops("heaviside grid_sample nextafter grid_sampler affine_grid"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = (torch.heaviside(x - 2, torch.ones(3)) * torch.tensor([1.0, 2.0, 3.0])).sum()

print(wrt.why(y, x)[0])
""",
)
