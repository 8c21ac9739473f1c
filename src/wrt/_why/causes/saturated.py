"""A squashing function is saturated."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "saturated",
    family="flat",
    means="a squashing function is saturated",
    remedy="use logits with a loss that takes them, or scale the input down",
    flattens=ops(
        "sigmoid tanh softsign erf logsigmoid logistic expit exp exp2 Sigmoid Tanh silu gelu softplus "
        "cos_similarity elu selu celu mish softmax log_softmax Softmax LogSoftmax logsumexp softmin gumbel_softmax"
    ),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    y = (torch.sigmoid(x + 500) * w).sum()

print(wrt.why(y, x)[0])
""",
)
