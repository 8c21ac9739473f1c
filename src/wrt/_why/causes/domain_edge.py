"""A function at the edge of its domain."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "domain_edge",
    family="singular",
    means="a function at the edge of its domain",
    remedy="keep the argument inside: clamp it by an eps",
    breaks=ops(
        "acos asin acosh atanh arccos arcsin arccosh arctanh atan2 arctan2 pow float_power __rpow__ Pow Acos Asin "
        "Acosh Atanh Atan2 erfinv erf_inv ndtri igamma lgamma digamma cholesky linalg_cholesky det logdet slogdet "
        "tan integer_pow hypot exp Exp expm1 exp2 cosh sinh"
    ),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 0.5], requires_grad=True)
    y = torch.acos(x).sum()

print(wrt.why(y, x)[0])
""",
)
