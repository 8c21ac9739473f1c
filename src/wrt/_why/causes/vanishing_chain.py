"""A long product shrinks."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "vanishing_chain",
    family="flat",
    means="a long product shrinks",
    remedy="use ReLU or GELU with residual connections, or normalization",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    h = x
    for _ in range(16):
        h = torch.sigmoid(h)
    y = h.sum()

print(wrt.why(y, x)[0])
""",
)
