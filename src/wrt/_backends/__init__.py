"""The one list of backends. A framework is touched only when the user has imported it already."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any, cast

from wrt._core.protocol import Backend
from wrt.errors import NotATensor

FRAMEWORKS: dict[str, str] = {"torch": "torch", "tensorflow": "tensorflow", "jax": "jax", "finite": "numpy"}
"""Backend -> the package that has to be imported before its tensors can exist."""


@cache
def load(name: str) -> Backend:
    """The backend of that name."""
    return cast(Backend, import_module(f"wrt._backends.{name}.backend").BACKEND)


def loaded() -> list[Backend]:
    """Backends of the frameworks that the user's program has imported."""
    return [load(name) for name, package in FRAMEWORKS.items() if package in sys.modules and available(name)]


@cache
def available(name: str) -> bool:
    """Whether wrt has this backend."""
    from importlib.util import find_spec

    return find_spec(f"wrt._backends.{name}") is not None and find_spec(f"wrt._backends.{name}.backend") is not None


def owner(obj: Any) -> Backend:
    """The backend whose tensor this is."""
    for backend in loaded():
        if backend.owns(obj):
            return backend
    raise NotATensor(
        f"d() of a {type(obj).__name__}",
        "it is not a tensor, a parameter, a module, or a dict, list or tuple of them",
        "write d(tensor), or d(model) for all parameters of a model",
    )
