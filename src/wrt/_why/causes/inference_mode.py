"""Computed under inference mode."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "inference_mode",
    family="modes",
    means="computed under inference mode",
    remedy="move the line out of torch.inference_mode(); to freeze a model use requires_grad_(False)",
    raised=("Inference tensors cannot be saved for backward", "inference tensor", r"made under torch\.inference_mode"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    with torch.inference_mode():
        h = x * 2
    y = (h.clone() * w).sum()

print(wrt.why(y, x)[0])
""",
)
