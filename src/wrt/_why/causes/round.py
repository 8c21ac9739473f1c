"""Rounding has slope zero."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "round",
    family="discrete",
    means="rounding has slope zero",
    remedy="use a straight-through estimator: x + (x.round() - x).detach()",
    stops=ops("Floor Ceil Round Rint floor_divide floordiv FloorDiv rfloordiv"),
    flattens=ops("round floor ceil trunc fix rint FloorDiv nearbyint fake_quantize div true_divide floor_divide FloorMod"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    y = (torch.round(x * 3) * w).sum()

print(wrt.why(y, x)[0])
""",
)
