"""Where() discards a branch whose derivative is not finite."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "where_nan_trap",
    family="singular",
    means="where() discards a branch whose derivative is not finite",
    remedy="clean the input of the branch that is not used with another where(), before the function",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    y = torch.where(x > 9, torch.sqrt(x - 5), x).sum()

print(wrt.why(y, x)[0])
""",
)
