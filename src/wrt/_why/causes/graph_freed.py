"""The graph was freed by an earlier backward."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "graph_freed",
    family="refused",
    means="the graph was freed by an earlier backward",
    remedy="compute it again, or pass retain_graph=True to the first backward",
    raised=(
        "backward through the graph a second time",
        "after they have already been freed",
        "the graph of y was freed by an earlier backward",
    ),
    case="""\
import torch
import wrt

try:
    with wrt.record():
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        y = (x**2).sum()
        y.backward()
        y.backward()
except RuntimeError as error:
    print(wrt.why(error)[0])
""",
)
