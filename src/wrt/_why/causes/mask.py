"""Multiplied by zero."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "mask",
    family="flat",
    means="multiplied by zero",
    remedy="expected where the mask is zero: ask for an element it keeps",
    flattens=ops(
        "mul Mul multiply matmul MatMul mm bmm linear addmm dot mv einsum dot_general BatchMatMulV2 masked_fill "
        "conv1d conv2d conv3d conv_general_dilated dropout feature_dropout"
    ),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    y = (x * torch.zeros(3) * w).sum()

print(wrt.why(y, x)[0])
""",
)
