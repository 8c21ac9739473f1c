"""The step goes up an objective that is to go down."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "objective_sign",
    family="wrong",
    means="the step goes up an objective that is to go down",
    remedy="step against the gradient: x - eps * grad",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.nn.functional.mse_loss(x, torch.zeros(2))
    y.backward()
    nearer = x.detach() + 0.1 * x.grad.sign()

print(wrt.why(y, x)[0])
""",
)
