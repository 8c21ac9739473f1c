"""Log of zero."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "log_zero",
    family="singular",
    means="log of zero",
    remedy="use log_softmax, xlogy or log(p + eps)",
    breaks=ops("log log2 log10 log1p Log Log1p logit xlog1py binary_cross_entropy nll_loss kl_div"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    y = ((x - x) * torch.log(x - x)).sum()

print(wrt.why(y, x)[0])
""",
)
