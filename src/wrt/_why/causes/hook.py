"""A hook changes the gradient."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "hook",
    family="wrong",
    means="a hook changes the gradient",
    remedy="remove the hook, or let it return None",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    h = x * 2
    h.register_hook(lambda g: 0 * g)
    y = (h * 3).sum()

print(wrt.why(y, x)[0])
""",
)
