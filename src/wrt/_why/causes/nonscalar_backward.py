"""Backward of more than one number without a gradient argument."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "nonscalar_backward",
    family="refused",
    means="backward of more than one number without a gradient argument",
    remedy="reduce it to one number, for example .sum(), or pass gradient=",
    raised=("grad can be implicitly created only for scalar outputs", "Gradient only defined for scalar-output"),
    case="""\
import torch
import wrt

try:
    with wrt.record():
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        y = x * 2
        y.backward()
except RuntimeError as error:
    print(wrt.why(error)[0])
""",
)
