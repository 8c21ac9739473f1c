"""Another tensor with the same values was asked about."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "recomputed_tensor",
    family="flat",
    means="another tensor with the same values was asked about",
    remedy="ask for the tensor of the run that made the output: keep it, or take it from a recording",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.tanh(x).sum()
    h = torch.tanh(x)

print(wrt.why(y, h)[0])
""",
)
