""".grad holds the sum of several backward calls."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "accumulated_grad",
    family="wrong",
    means=".grad holds the sum of several backward calls",
    remedy="reset it before backward: optimizer.zero_grad() or {x}.grad = None",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.1)
    for _ in range(2):
        y = (x**2).sum()
        y.backward()
        optimizer.step()

print(wrt.why(y, x)[0])
""",
)
