"""A recurrent state is cut between steps."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "detached_hidden_state",
    family="cut",
    means="a recurrent state is cut between steps",
    remedy="keep the state attached across the steps you want to differentiate through",
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    w = torch.eye(3, requires_grad=True)
    h = x
    for _ in range(3):
        h = torch.tanh(h @ w)
        h = h.detach()
    y = torch.tanh(h @ w).sum()

print(wrt.why(y, x)[0])
""",
)
