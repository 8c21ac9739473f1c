"""A softmax row that is masked entirely."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "masked_softmax_row",
    family="singular",
    means="a softmax row that is masked entirely",
    remedy="use a large negative finite number as the mask, or zero the rows that are masked entirely",
    breaks=ops(
        "softmax log_softmax Softmax LogSoftmax logsumexp softmin scaled_dot_product_attention cross_entropy "
        "reduce_logsumexp logaddexp"
    ),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    scores = x + torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]])
    y = (torch.softmax(scores, 1) * torch.tensor([1.0, 2.0])).sum()

print(wrt.why(y, x)[0])
""",
)
