"""The value goes through NumPy and back."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "numpy_roundtrip",
    family="leaving",
    means="the value goes through NumPy and back",
    remedy="stay within the framework: its own functions on the tensor itself",
    stops=ops("numpy __array__ from_numpy __dlpack__"),
    raised=(r"Can't call numpy\(\) on Tensor that requires grad",),
    case="""\
import numpy as np
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    h = torch.from_numpy(np.tanh(x.detach().numpy()))
    y = (h * w).sum()

print(wrt.why(y, x)[0])
""",
)
