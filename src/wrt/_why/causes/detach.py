""".detach() cuts the path."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "detach",
    family="cut",
    means=".detach() cuts the path",
    remedy="remove .detach(), or ask for the derivative with respect to what it returns",
    stops=ops("detach detach_ detach_copy"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    h = (x * 2).detach()
    y = (h * w).sum()

print(wrt.why(y, x)[0])
""",
)
