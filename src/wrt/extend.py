"""The third door: what a tool on top of wrt needs besides the notation. No framework is named here.

    numbers(t["h"])            the numbers of a handle, a Derivative or a tensor, as a NumPy array
    tensor_like(array, t["h"]) numbers as a tensor of the same framework, dtype and device
    precision(t["h"])          machine epsilon of its dtype
    handle_of(t, 7)            the handle of a tensor of `t.graph`; tensors_of(t, handle) the way back, for inputs
    named(d(loss) / d(model))  every leaf of a tree of answers with its path
    kept(model)                inside, the model may run: its buffers and the random states are put back
    Progress(what, total)      a bar for long work, silent where nobody would see it
    refuse_foreign(path)       raise before a page is written over what is none of wrt's
"""

from wrt._core.files import refuse_foreign
from wrt._notation.again import kept
from wrt._run.progress import Progress
from wrt._study.tensors import handle_of, is_float, named, numbers, precision, tensor_like, tensors_of

__all__ = [
    "Progress", "handle_of", "is_float", "kept", "named", "numbers", "precision", "refuse_foreign", "tensor_like", "tensors_of",
]  # fmt: skip
