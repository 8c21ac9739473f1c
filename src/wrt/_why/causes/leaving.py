"""The value leaves the framework and comes back as plain numbers."""

from wrt._why.cause import Cause, ops

CAUSES = (
    Cause(
        "item",
        "the value becomes a Python number",
        "keep it a tensor: a 0-d tensor can be used where the number was",
        stops=ops("item tolist __float__ __int__ __complex__ __index__"),
        case="s = x.sum().item()\ny = (w * s).sum()",
    ),
    Cause(
        "numpy_roundtrip",
        "the value goes through NumPy and back",
        "stay within the framework: its own functions on the tensor itself",
        stops=ops("numpy __array__ from_numpy __dlpack__"),
        raised=(r"Can't call numpy\(\) on Tensor that requires grad",),
        case="h = torch.from_numpy(np.tanh(x.detach().numpy()))\ny = (h * w).sum()",
    ),
    Cause(
        "host_callback",
        "the value goes through a Python function that runs outside the framework",
        "use the framework's own operations, or give the callback a custom derivative",
        stops=ops("pure_callback io_callback PyFunc EagerPyFunc PyFuncStateless numpy_function python_callback"),
        raised=("Pure callbacks do not support JVP", "IO callbacks do not support JVP"),
    ),
)
