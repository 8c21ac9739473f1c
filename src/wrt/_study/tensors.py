"""Numbers in and out of a framework that is not named here, and a model that runs without leaving a trace."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt import _backends
from wrt._notation.derivative import Derivative
from wrt._notation.trace import Handle

Numbers = npt.NDArray[Any]


def numbers(obj: Any) -> Numbers:
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


def tensor_like(array: Numbers, handle: Handle) -> Any:
    """Numbers as a tensor of the handle's framework, in its dtype, where it lives."""
    value, _ = handle.__wrt_differential__()
    return value.record.backend.arrays.native(array, value)


def precision(handle: Handle) -> float:
    """Machine epsilon of the dtype in which the handle's derivatives are computed."""
    value, _ = handle.__wrt_differential__()
    return value.record.backend.arrays.precision(value)


def is_float(handle: Any) -> bool:
    """Whether a handle has floating-point numbers, in the words of any framework."""
    return "float" in str(getattr(handle, "dtype", "")).lower()


def kept(*objects: Any) -> AbstractContextManager[None]:
    """Run models inside: running statistics and random states are afterwards what they were before."""
    keepers = _keepers(tuple([package in sys.modules for package in _backends.FRAMEWORKS.values()]))
    return keepers[0](objects) if len(keepers) == 1 else _all(keepers, objects)


@cache
def _keepers(loaded: tuple[bool, ...]) -> list[Callable[[tuple[Any, ...]], AbstractContextManager[None]]]:
    """Those of the frameworks that the program uses; a small model runs no longer than it takes to look for them."""
    return [keeper for one in _backends.loaded() if (keeper := _keeper(one.name)) is not None]


@contextmanager
def _all(keepers: list[Any], objects: tuple[Any, ...]) -> Iterator[None]:
    with ExitStack() as stack:
        for keeper in keepers:
            stack.enter_context(keeper(objects))
        yield


@cache
def _keeper(backend: str) -> Callable[[tuple[Any, ...]], AbstractContextManager[None]] | None:
    """How a framework puts back what running a model changes; None where nothing is changed."""
    where = f"wrt._backends.{backend}.kept"
    return import_module(where).kept if find_spec(where) is not None else None
