"""Only the indices of a sort are used."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "sort_indices",
    family="discrete",
    means="only the indices of a sort are used",
    remedy="use the sorted values, or a soft rank",
    stops=ops("argsort sort topk kthvalue msort TopKV2 top_k approx_top_k median mode nanmedian"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    r = x.argsort().float()
    y = (r * w).sum()

print(wrt.why(y, x)[0])
""",
)
