"""Wrapping a result as a parameter makes a new leaf."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "parameter_wrap",
    family="cut",
    means="wrapping a result as a parameter makes a new leaf",
    remedy="use the tensor itself, for example by torch.func.functional_call(layer, {'weight': w}, x)",
    stops=ops("Parameter"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    p = torch.nn.Parameter(x * 2)
    y = (p * w).sum()

print(wrt.why(y, x)[0])
""",
)
