"""Tensors of any framework as plain bytes and back: what a model needs on its way to another process."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt import _backends


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """One tensor: whose it is, what it was, its numbers."""

    framework: str
    kind: str
    dtype: str
    numbers: npt.NDArray[Any]


@cache
def travel(framework: str) -> Any:
    """How tensors of a framework travel; None where they are NumPy's anyway."""
    where = f"wrt._backends.{framework}.travel"
    return import_module(where) if find_spec(where) is not None else None


def frameworks() -> list[str]:
    """The frameworks of this process whose tensors travel."""
    return [one.name for one in _backends.loaded() if travel(one.name) is not None]


def pack(tree: Any) -> Any:
    """The same containers with every tensor packed; other objects stay, and are pickled."""
    names = frameworks()

    def leaf(one: Any) -> Any:
        for name in names:
            found = travel(name).packed(one)
            if found is not None:
                return Packed(name, *found)
        return one

    return mapped(tree, leaf)


def unpack(tree: Any, device: str | None) -> Any:
    """Tensors again, on a device of this process (None: wherever the framework puts them)."""

    def leaf(one: Any) -> Any:
        if not isinstance(one, Packed):
            return one
        return travel(one.framework).unpacked(one.kind, one.dtype, one.numbers, device)

    return mapped(tree, leaf)


def leaves(tree: Any) -> Iterator[Any]:
    """What the containers hold."""
    if isinstance(tree, Mapping):
        for one in tree.values():
            yield from leaves(one)
    elif isinstance(tree, (list, tuple)):
        for one in tree:
            yield from leaves(one)
    else:
        yield tree


def mapped(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """The same containers with every leaf replaced; only Python's own containers are looked into."""
    if isinstance(tree, dict):
        changed = {key: mapped(one, leaf) for key, one in tree.items()}
        return changed if type(tree) is dict else _like(tree, changed)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(one, leaf) for one in tree))
    if type(tree) in (list, tuple):
        return type(tree)(mapped(one, leaf) for one in tree)
    return leaf(tree)


def _like(tree: Any, changed: dict[Any, Any]) -> Any:
    """A dict of another type (a state_dict is an OrderedDict with an attribute) as that type, where it can be made."""
    try:
        made = type(tree)(changed)
    except TypeError:
        return changed
    vars(made).update(getattr(tree, "__dict__", {})) if hasattr(made, "__dict__") else None
    return made


# ---------------------------------------------------------------- what two models must share to be one


def fingerprint(*things: Any) -> str:
    """A short text that is the same for the same things, in every process."""
    digest = hashlib.blake2b(digest_size=16)
    for one in things:
        _feed(digest, one)
    return digest.hexdigest()


def _feed(digest: Any, one: Any) -> None:
    digest.update(type(one).__name__.encode())
    if isinstance(one, Packed):
        _feed(digest, (one.framework, one.kind, one.dtype, one.numbers))
    elif isinstance(one, np.ndarray) and one.dtype.kind != "O":
        digest.update(f"{one.dtype.str}{one.shape}".encode())
        digest.update(np.ascontiguousarray(one).reshape(-1).view(np.uint8))
    elif isinstance(one, Mapping):
        for key, value in one.items():
            _feed(digest, key)
            _feed(digest, value)
    elif isinstance(one, (list, tuple)):
        digest.update(f"{len(one)}".encode())
        for each in one:
            _feed(digest, each)
    elif isinstance(one, FunctionType):
        _feed_function(digest, one)
    elif isinstance(one, CodeType):
        _feed(digest, (one.co_code, one.co_names, one.co_varnames, one.co_freevars, one.co_consts))
    elif one is None or isinstance(one, (bool, int, float, complex, str, bytes, slice, frozenset)):
        digest.update(repr(sorted(map(repr, one)) if isinstance(one, frozenset) else one).encode())
    else:
        digest.update(pickle.dumps(one) if not _local(one) else _by_value(one))


def _feed_function(digest: Any, function: FunctionType) -> None:
    """Its name, its code and what it closes over; not the line it stands on."""
    _feed(digest, (function.__module__ if function.__module__ != "__main__" else "", function.__qualname__))
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    _feed(digest, (function.__code__, function.__defaults__, function.__kwdefaults__, cells))


def _local(one: Any) -> bool:
    """Whether plain pickle could not name it: it was made in a script or inside a function."""
    owner = one if isinstance(one, type) else type(one)
    return owner.__module__ == "__main__" or "<locals>" in owner.__qualname__


def _by_value(one: Any) -> bytes:
    found: bytes = import_module("cloudpickle").dumps(one)
    return found
