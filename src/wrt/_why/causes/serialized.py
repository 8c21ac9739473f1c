"""The value is written out as bytes and read back."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "serialized",
    family="leaving",
    means="the value is written out as bytes and read back",
    remedy="use the tensor itself: .clone() copies it and keeps its history, pickle, copy.copy and torch.save do not",
    stops=ops("__reduce_ex__ untyped_storage storage SerializeTensor AsString StringFormat"),
    case="""\
import pickle
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    h = pickle.loads(pickle.dumps(x * 2))
    y = (h * w).sum()

print(wrt.why(y, x)[0])
""",
)
