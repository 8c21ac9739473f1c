"""The third door: what a tool on top of wrt needs besides the notation. No framework is named here.

    numbers(t["h"])            the numbers of a handle, a Derivative or a tensor, as a NumPy array
    tensor_like(array, t["h"]) numbers as a tensor of the same framework, dtype and device
    precision(t["h"])          machine epsilon of its dtype
    kept(model)                inside, the model may run: its buffers and the random states are put back
    Progress(what, total)      a bar for long work, silent where nobody would see it
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt import _backends
from wrt._notation.derivative import Derivative
from wrt._notation.trace import Handle
from wrt._run.progress import Progress

__all__ = ["Progress", "kept", "numbers", "precision", "tensor_like"]


def numbers(obj: Any) -> npt.NDArray[Any]:
    """The numbers of a handle, a Derivative, a tensor of any framework, or what NumPy makes of anything else.

    >>> numbers([1.0, 2.0]).tolist()
    [1.0, 2.0]
    """
    if isinstance(obj, Derivative):
        return obj.numpy()
    tensor = obj.value if isinstance(obj, Handle) else obj
    for backend in _backends.loaded():
        if backend.name != "finite" and backend.owns(tensor):
            return backend.arrays.numpy(tensor)
    return np.asarray(tensor)


def tensor_like(array: npt.NDArray[Any], handle: Handle) -> Any:
    """Numbers as a tensor of the handle's framework, in its dtype, where it lives."""
    value, _ = handle.__wrt_differential__()
    return value.record.backend.arrays.native(array, value)


def precision(handle: Handle) -> float:
    """Machine epsilon of the dtype in which the handle's derivatives are computed."""
    value, _ = handle.__wrt_differential__()
    return value.record.backend.arrays.precision(value)


@contextmanager
def kept(*objects: Any) -> Iterator[None]:
    """Run models inside: running statistics and random states are afterwards what they were before."""
    with ExitStack() as stack:
        for backend in _backends.loaded():
            where = f"wrt._backends.{backend.name}.kept"
            if find_spec(where) is not None:
                stack.enter_context(import_module(where).kept(objects))
        yield
