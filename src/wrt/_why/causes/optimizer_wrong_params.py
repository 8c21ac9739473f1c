"""The optimizer holds other parameters."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "optimizer_wrong_params",
    family="wrong",
    means="the optimizer holds other parameters",
    remedy="build the optimizer after the model has its final parameters",
    case="""\
import torch
import wrt

with wrt.record():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[1] = torch.nn.Linear(2, 1)
    y = model(torch.ones(3, 2)).pow(2).mean()
    y.backward()
    optimizer.step()

print(wrt.why(y, model[1].weight)[0])
""",
)
