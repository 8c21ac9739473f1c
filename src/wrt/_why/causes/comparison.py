"""The value only enters through a comparison."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "comparison",
    family="discrete",
    means="the value only enters through a comparison",
    remedy="use a soft comparison: torch.sigmoid(k * (a - b))",
    stops=ops(
        "gt lt ge le eq ne greater less greater_equal less_equal equal not_equal isclose logical_and logical_or "
        "logical_not logical_xor isnan isinf isfinite GreaterEqual LessEqual NotEqual LogicalAnd LogicalOr "
        "LogicalNot and or not xor all any nonzero __bool__ is_nonzero count_nonzero invert signbit is_finite"
    ),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    keep = w > x
    y = w[keep].sum()

print(wrt.why(y, x)[0])
""",
)
