"""Clamped outside its range."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "clamp",
    family="flat",
    means="clamped outside its range",
    remedy="clamp only for display, or use a soft bound such as tanh",
    flattens=ops(
        "clamp clamp_ clip clamp_min clamp_max hardtanh hardsigmoid hardswish hardshrink softshrink clip_by_value "
        "ClipByValue"
    ),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    y = (torch.clamp(x + 100, -1, 1) * w).sum()

print(wrt.why(y, x)[0])
""",
)
