"""Norm of a zero vector."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "norm_at_zero",
    family="singular",
    means="norm of a zero vector",
    remedy="skip zero rows, raise eps, or write sqrt(sum + eps)",
    flattens=ops(
        "norm vector_norm matrix_norm normalize frobenius_norm cdist pairwise_distance linalg_norm "
        "linalg_vector_norm dist"
    ),
    breaks=ops(
        "norm vector_norm matrix_norm normalize frobenius_norm cosine_similarity pairwise_distance cdist "
        "l2_normalize dist linalg_norm linalg_vector_norm euclidean_norm EuclideanNorm renorm layer_norm "
        "batch_norm group_norm instance_norm rms_norm"
    ),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    x = torch.zeros(3, requires_grad=True)
    y = torch.linalg.norm(x) * 2

print(wrt.why(y, x)[0])
""",
)
