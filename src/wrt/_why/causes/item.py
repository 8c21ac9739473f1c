"""The value becomes a Python number."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "item",
    family="leaving",
    means="the value becomes a Python number",
    remedy="keep it a tensor: a 0-d tensor can be used where the number was",
    stops=ops("item tolist __float__ __int__ __complex__ __index__"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    s = x.sum().item()
    y = (w * s).sum()

print(wrt.why(y, x)[0])
""",
)
