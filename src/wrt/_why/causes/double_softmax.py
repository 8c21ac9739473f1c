"""Softmax before a loss that applies it again."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "double_softmax",
    family="wrong",
    means="softmax before a loss that applies it again",
    remedy="give the raw logits to the loss",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    p = torch.softmax(x, 1)
    y = torch.nn.functional.cross_entropy(p, torch.tensor([0]))

print(wrt.why(y, x)[0])
""",
)
