"""An operation with an integer result."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "integer_output",
    family="discrete",
    means="an operation with an integer result",
    remedy="interpolate between the neighboring bins; the number of a bin has no derivative",
    stops=ops(
        "searchsorted bucketize histc histogram bincount unique unique_consecutive SearchSorted UpperBound "
        "LowerBound Bucketize Unique UniqueV2 Bincount HistogramFixedWidth one_hot"
    ),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([0.2, 1.7], requires_grad=True)
    w = torch.tensor([0.5, 0.6, 0.7], requires_grad=True)
    k = torch.bucketize(x, torch.tensor([0.0, 1.0]))
    y = w[k].sum()

print(wrt.why(y, x)[0])
""",
)
