"""Tensors of any framework as plain bytes and back, and fingerprints: what a model needs on its way to another process.

A fingerprint is a short text by which a model, a question or data are known again, also in another process. A function is
known by its code, by what it closes over and by the functions, classes and numbers of its own module that it names, not
by the lines it stands on. What it calls in other modules is known by name alone.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt import _backends
from wrt.errors import CannotTravel


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """One tensor: whose it is, what it was, its numbers."""

    framework: str
    kind: str
    dtype: str
    numbers: npt.NDArray[Any]


def travel(framework: str) -> Any:
    """How tensors of a framework travel."""
    return _backends.part(framework, "travel")


def frameworks() -> list[str]:
    """The frameworks of this process."""
    return [one.name for one in _backends.loaded()]


def pack(tree: Any) -> Any:
    """The same containers with every tensor packed; other objects stay, and are pickled."""
    names = frameworks()

    def leaf(one: Any) -> Any:
        for name in names:
            found = travel(name).packed(one)
            if found is not None:
                return Packed(name, *found)
        return one

    return map_leaves(tree, leaf)


def unpack(tree: Any, device: str | None) -> Any:
    """Tensors again, on a device of this process (None: wherever the framework puts them)."""

    def leaf(one: Any) -> Any:
        if not isinstance(one, Packed):
            return one
        return travel(one.framework).unpacked(one.kind, one.dtype, one.numbers, device)

    return map_leaves(tree, leaf)


def leaves(tree: Any) -> Iterator[Any]:
    """What the containers hold."""
    if isinstance(tree, (Mapping, list, tuple)):
        for one in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(one)
    else:
        yield tree


def map_leaves(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """The same containers with every leaf replaced; only Python's own containers are looked into."""
    if isinstance(tree, dict):
        changed = {key: map_leaves(one, leaf) for key, one in tree.items()}
        return changed if type(tree) is dict else _like(tree, changed)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(one, leaf) for one in tree))
    if type(tree) in (list, tuple):
        return type(tree)(map_leaves(one, leaf) for one in tree)
    return leaf(tree)


def _like(tree: Any, changed: dict[Any, Any]) -> Any:
    """A dict of another type (a state_dict is an OrderedDict with an attribute) as that type, where it can be made."""
    try:
        made = type(tree)(changed)
    except TypeError:
        return changed
    vars(made).update(getattr(tree, "__dict__", {})) if hasattr(made, "__dict__") else None
    return made


PLAIN = (bool, int, float, complex, str, bytes, slice, type(None), type(...), np.generic, np.dtype)


def fingerprint(*things: Any) -> str:
    """The same for the same things."""
    reader = _Reader()
    reader.feed(things)
    return reader.digest.hexdigest()


class _Reader:
    """One reading; what was met already is not read again, so that functions may name each other."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self.met: dict[int, Any] = {}

    def feed(self, one: Any) -> None:
        self.digest.update(f"{type(one).__name__}:".encode())
        if isinstance(one, PLAIN):
            self.digest.update(repr(one).encode())
        elif isinstance(one, Packed):
            self.feed((one.framework, one.kind, one.dtype, one.numbers))
        elif isinstance(one, np.ndarray) and one.dtype.kind != "O":
            self.digest.update(f"{one.dtype.str}{one.shape}".encode())
            self.digest.update(np.ascontiguousarray(one).reshape(-1).view(np.uint8).data)
        elif isinstance(one, (list, tuple, set, frozenset, Mapping)):
            self._contents(one)
        elif isinstance(one, (FunctionType, CodeType, type, ModuleType, BuiltinFunctionType)):
            if id(one) not in self.met:
                self.met[id(one)] = one
                self._program(one)
        else:
            self._object(one)

    def _contents(self, one: Any) -> None:
        self.digest.update(f"{len(one)}".encode())
        if isinstance(one, Mapping):
            for key, value in one.items():
                self.feed(key)
                self.feed(value)
        else:
            for each in sorted(one, key=repr) if isinstance(one, (set, frozenset)) else one:
                self.feed(each)

    def _program(self, one: Any) -> None:
        if isinstance(one, CodeType):
            self.feed((one.co_code, one.co_names, one.co_varnames, one.co_freevars, one.co_consts))
        elif isinstance(one, FunctionType):
            cells = [cell.cell_contents for cell in one.__closure__ or ()]
            self.feed((one.__qualname__, one.__code__, pack([one.__defaults__, one.__kwdefaults__, cells])))
            self._named(one)
        elif isinstance(one, type) and _of_the_user(one.__module__):
            inside = {name: value for name, value in vars(one).items() if isinstance(value, (FunctionType, *PLAIN))}
            shown = {name: value for name, value in inside.items() if name not in ("__module__", "__firstlineno__")}
            self.feed((one.__qualname__, [base.__qualname__ for base in one.__mro__], shown))
        else:
            self.feed((getattr(one, "__module__", ""), getattr(one, "__qualname__", one.__name__)))

    def _named(self, function: FunctionType) -> None:
        """Functions, classes and numbers of its own module that the function names."""
        if not _of_the_user(function.__module__):
            return
        for name in _names(function.__code__):
            value = function.__globals__.get(name)
            own = isinstance(value, (FunctionType, type)) and value.__module__ == function.__module__
            if own or (name in function.__globals__ and isinstance(value, PLAIN)):
                self.feed((name, value))

    def _object(self, one: Any) -> None:
        try:
            kind = type(one)
            importable = kind.__module__ != "__main__" and "<locals>" not in kind.__qualname__
            self.digest.update(pickle.dumps(one) if importable else import_module("cloudpickle").dumps(one))
        except Exception as error:
            raise CannotTravel(
                f"a {type(one).__name__} is alive in this process and cannot be sent",
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'it refuses'}",
                "let build(state) make it in every process, and put into the state what can be copied",
            ) from None


def _names(code: CodeType) -> list[str]:
    """Every name that a function and the functions inside it use, in order."""
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return list(dict.fromkeys([*code.co_names, *inner]))


def _of_the_user(module: str | None) -> bool:
    """Whether a module is somebody's program: code of installed packages changes with their versions, not in between."""
    found = sys.modules.get(module or "")
    where = getattr(found, "__file__", None) or ""
    return "site-packages" not in where and "dist-packages" not in where and not (module or "").startswith("wrt.")
