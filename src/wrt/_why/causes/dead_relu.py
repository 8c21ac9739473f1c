"""Every relu on the path is off."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "dead_relu",
    family="flat",
    means="every relu on the path is off",
    remedy="use LeakyReLU, a smaller learning rate, or a better initial bias",
    flattens=ops("relu Relu threshold relu6 Relu6 rrelu relu_"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    h = torch.relu(x - 100)
    y = (h * w).sum()

print(wrt.why(y, x)[0])
""",
)
