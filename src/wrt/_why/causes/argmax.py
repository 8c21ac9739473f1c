"""The path goes through the index of a largest or smallest element."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "argmax",
    family="discrete",
    means="the path goes through the index of a largest or smallest element",
    remedy="use softmax, Gumbel-softmax or a straight-through estimator",
    stops=ops("argmax argmin ArgMax ArgMin max min cummax cummin"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    k = x.argmax()
    y = w[k]

print(wrt.why(y, x)[0])
""",
)
