"""An integer input cannot be differentiated."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "int_input",
    family="discrete",
    means="an integer input cannot be differentiated",
    remedy="make it floating point: 2.0 instead of 2",
    raised=(
        r"d\(\) of a(?: tensor|n array) of (?:u?int|bool|whole)",
        "is a tensor of (?:u?int|bool)",
        "only Tensors of floating point",
        "grad requires real- or complex-valued inputs",
    ),
    case="""\
import torch
import wrt

try:
    with wrt.record():
        x = torch.tensor([1, 2, 3], requires_grad=True)
        y = (x * 2).sum()
except RuntimeError as error:
    print(wrt.why(error)[0])
""",
)
