"""Eigen or singular vectors at repeated or zero values."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "degenerate_eig",
    family="singular",
    means="eigen or singular vectors at repeated or zero values",
    remedy="differentiate a function of the eigenvalues or of the projector, not single vectors",
    breaks=ops(
        "eigh linalg_eigh eig linalg_eig svd linalg_svd symeig eigvals linalg_eigvals pca_lowrank SelfAdjointEigV2 "
        "Svd qr linalg_qr eigvalsh matrix_rank pinv linalg_pinv svdvals"
    ),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.eye(3, requires_grad=True)
    values, vectors = torch.linalg.eigh(x)
    y = (vectors**3).sum()

print(wrt.why(y, x)[0])
""",
)
