"""The value was overwritten before it was used."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "inplace_overwrite",
    family="flat",
    means="the value was overwritten before it was used",
    remedy="write into a copy, or use the value before this line",
    flattens=ops(
        "setitem copy_ fill_ zero_ index_put_ index_fill_ scatter_ index_copy_ scatter copy dynamic_update_slice "
        "TensorScatterUpdate index_put select_scatter slice_scatter fill zero alias index_copy index_fill "
        "masked_scatter"
    ),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    h = x * 2
    h[:] = 0
    y = (h * w).sum()

print(wrt.why(y, x)[0])
""",
)
