"""The gradient belongs to a copy."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "copied_module",
    family="cut",
    means="the gradient belongs to a copy",
    remedy="ask for the copy's parameters, or use torch.func.functional_call with the original's",
    stops=ops("__deepcopy__ Parameterofacopy"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    import copy
    net = torch.nn.Linear(3, 1)
    twin = copy.deepcopy(net)
    y = twin(x).sum()
    x = net.weight

print(wrt.why(y, x)[0])
""",
)
