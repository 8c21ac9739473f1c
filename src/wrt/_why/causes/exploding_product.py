"""A long product grows."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "exploding_product",
    family="flat",
    means="a long product grows",
    remedy="clip the gradient norm, or constrain the repeated weight (orthogonal initialization)",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    h = x
    for _ in range(16):
        h = 5 * h
    y = h.sum()

print(wrt.why(y, x)[0])
""",
)
