""".data cuts the path, or hides a write from autograd."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "dot_data",
    family="cut",
    means=".data cuts the path, or hides a write from autograd",
    remedy="use the tensor itself; for an update by hand write it under torch.no_grad() or functionally",
    stops=ops("data data="),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    h = (x * 2).data
    y = (h * w).sum()

print(wrt.why(y, x)[0])
""",
)
