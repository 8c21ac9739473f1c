"""Two shapes broadcast by accident, so the loss is another one than meant."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "broadcast",
    family="wrong",
    means="two shapes broadcast by accident, so the loss is another one than meant",
    remedy="make the shapes equal: a.squeeze(1) or b.unsqueeze(1)",
    case="""\
import warnings

import torch
import wrt

warnings.simplefilter("ignore")  # torch has a remark about it, too

with wrt.record():
    x = torch.ones(4, 1, requires_grad=True)
    y = torch.nn.functional.mse_loss(x * 2, torch.zeros(4))

print(wrt.why(y, x)[0])
""",
)
