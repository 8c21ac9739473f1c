"""The derivative is infinite or undefined at this very number."""

from wrt._why.cause import Cause, ops

CAUSES = (
    Cause("sqrt_at_zero", "sqrt at zero", "write sqrt(s + eps), or norm, whose slope at zero is set to 0",
          breaks=ops("sqrt rsqrt std std_mean Sqrt Rsqrt reduce_std"),
          flattens=ops("std std_mean reduce_std"), case="y = (x - x).pow(2).sum().sqrt()"),
    Cause("log_zero", "log of zero", "use log_softmax, xlogy or log(p + eps)",
          breaks=ops("log log2 log10 log1p Log Log1p logit xlog1py binary_cross_entropy nll_loss kl_div"),
          case="y = ((x - x) * torch.log(x - x)).sum()"),
    Cause("div_zero", "a division by zero", "guard the divisor: where(d == 0, eps, d)",
          breaks=ops("div true_divide divide truediv rtruediv reciprocal remainder fmod RealDiv Div Reciprocal rdiv rem "
                     "xdivy DivNoNan inverse inv solve"),
          case="y = (w / (x - x)).sum()"),
    Cause("norm_at_zero", "norm of a zero vector", "skip zero rows, raise eps, or write sqrt(sum + eps)",
          flattens=ops("norm vector_norm matrix_norm normalize frobenius_norm cdist pairwise_distance linalg_norm "
                       "linalg_vector_norm dist"),
          breaks=ops("norm vector_norm matrix_norm normalize frobenius_norm cosine_similarity pairwise_distance cdist "
                     "l2_normalize dist linalg_norm linalg_vector_norm euclidean_norm EuclideanNorm renorm layer_norm "
                     "batch_norm group_norm instance_norm rms_norm"),
          case="x = torch.zeros(3, requires_grad=True)\ny = torch.linalg.norm(x) * 2"),
    Cause("domain_edge", "a function at the edge of its domain", "keep the argument inside: clamp it by an eps",
          breaks=ops("acos asin acosh atanh arccos arcsin arccosh arctanh atan2 arctan2 pow float_power __rpow__ Pow Acos "
                     "Asin Acosh Atanh Atan2 erfinv erf_inv ndtri igamma lgamma digamma cholesky linalg_cholesky det "
                     "logdet slogdet tan integer_pow hypot exp Exp expm1 exp2 cosh sinh")),
    Cause("degenerate_eig", "eigen or singular vectors at repeated or zero values",
          "differentiate a function of the eigenvalues or of the projector, not single vectors",
          breaks=ops("eigh linalg_eigh eig linalg_eig svd linalg_svd symeig eigvals linalg_eigvals pca_lowrank SelfAdjointEigV2 "
                     "Svd qr linalg_qr eigvalsh matrix_rank pinv linalg_pinv svdvals")),
    Cause("masked_softmax_row", "a softmax row that is masked entirely",
          "use a large negative finite number as the mask, or zero the rows that are masked entirely",
          breaks=ops("softmax log_softmax Softmax LogSoftmax logsumexp softmin scaled_dot_product_attention cross_entropy "
                     "reduce_logsumexp logaddexp")),
    Cause("where_nan_trap", "where() discards a branch whose derivative is not finite",
          "clean the input of the branch that is not used with another where(), before the function",
          case="y = torch.where(x > 9, torch.sqrt(x - 5), x).sum()"),
    Cause("low_precision", "underflow, overflow or a no-op in a narrow type",
          "compute this line in float32, or use an eps that the type can hold"),
    Cause("tie_subgradient", "a tie or a kink: only one of several slopes is given",
          "break the tie, or use a smooth function such as logsumexp", flattens=ops("abs absolute")),
)  # fmt: skip
