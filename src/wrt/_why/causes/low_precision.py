"""Underflow, overflow or a no-op in a narrow type."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "low_precision",
    family="singular",
    means="underflow, overflow or a no-op in a narrow type",
    remedy="compute this line in float32, or use an eps that the type can hold",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1e-5, 2e-5], dtype=torch.float16, requires_grad=True)
    y = (x * x * x).sum()

print(wrt.why(y, x)[0])
""",
)
