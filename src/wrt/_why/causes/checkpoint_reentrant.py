"""Activation checkpointing in its reentrant form hides the graph."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "checkpoint_reentrant",
    family="cut",
    means="activation checkpointing in its reentrant form hides the graph",
    remedy="write checkpoint(..., use_reentrant=False)",
    raised=("use_reentrant=True",),
    case="""\
import torch
import torch.utils.checkpoint
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    h = torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True)
    y = h.sum()

print(wrt.why(y, x)[0])
""",
)
