"""Tensors of any framework as plain bytes and back: what a model needs on its way to another process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

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


def steady(framework: str) -> AbstractContextManager[None]:
    """Inside, a framework answers the same question with the same bits, whatever it was asked before."""
    kept = getattr(travel(framework), "steady", nullcontext)
    return cast(AbstractContextManager[None], kept())


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
