"""The one list of backends. A framework is touched only when the user has imported it already."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any, cast

import numpy as np

from wrt._core.protocol import Backend
from wrt.errors import NotATensor

FRAMEWORKS = ("torch", "tensorflow", "jax")


@cache
def load(name: str) -> Backend:
    """The backend of that name."""
    return cast(Backend, import_module(f"wrt._backends.{name}.backend").BACKEND)


@cache
def part(framework: str, name: str) -> Any:
    """What a layer above needs of a framework beyond its backend: `travel`, `training`."""
    return import_module(f"wrt._backends.{framework}.{name}")


def loaded() -> list[Backend]:
    """Backends of the frameworks that the user's program has imported."""
    return [load(name) for name in FRAMEWORKS if name in sys.modules]


def owner(obj: Any) -> Backend | None:
    """The backend whose tensor this is; None for anything else, an array of NumPy included."""
    return next((backend for backend in loaded() if backend.owns(obj)), None)


def not_a_tensor(obj: Any) -> NotATensor:
    """What to say of an object that no backend owns."""
    if isinstance(obj, np.ndarray):
        return NotATensor(
            "d() of a NumPy array",
            "NumPy keeps no history, and nothing can be differentiated through it",
            "compute it with torch, TensorFlow or JAX",
        )
    return NotATensor(
        f"d() of a {type(obj).__name__}",
        "it is not a tensor, a parameter, a module, or a dict, list or tuple of them",
        "write d(tensor), or d(model) for all parameters of a model",
    )
