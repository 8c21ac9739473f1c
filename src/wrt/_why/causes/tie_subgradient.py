"""A tie or a kink: only one of several slopes is given."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "tie_subgradient",
    family="singular",
    means="a tie or a kink: only one of several slopes is given",
    remedy="break the tie, or use a smooth function such as logsumexp",
    flattens=ops("abs absolute"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([2.0, 2.0], requires_grad=True)
    y = x.max()

print(wrt.why(y, x)[0])
""",
)
