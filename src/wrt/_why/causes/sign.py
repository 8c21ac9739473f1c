"""Sign has slope zero."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "sign",
    family="discrete",
    means="sign has slope zero",
    remedy="use tanh(k * x), or a straight-through estimator",
    stops=ops("Sign"),
    flattens=ops("sign sgn"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    y = (torch.sign(x) * w).sum()

print(wrt.why(y, x)[0])
""",
)
