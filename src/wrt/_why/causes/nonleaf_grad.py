""".grad of a tensor that is no leaf is not kept."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "nonleaf_grad",
    family="wrong",
    means=".grad of a tensor that is no leaf is not kept",
    remedy="call {x}.retain_grad() before backward, or ask for d({y}) / d({x})",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    h = x * 2
    y = (h**2).sum()
    y.backward()

print(wrt.why(y, h)[0])
""",
)
