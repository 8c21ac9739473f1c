"""Cast to an integer type."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "integer_cast",
    family="discrete",
    means="cast to an integer type",
    remedy="keep floats; interpolate between neighbors instead of picking one",
    stops=ops("long int short char byte bool to type Cast convert_element_type int32 int64 type_as cast"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    k = (x * 0.5).long()
    y = w[k].sum()

print(wrt.why(y, x)[0])
""",
)
