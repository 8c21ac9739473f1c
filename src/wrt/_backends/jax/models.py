"""Models of Flax and Equinox, as far as they differ from other trees of arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax

from wrt._backends.jax import compat


def is_model(obj: Any) -> bool:
    """Whether this is a model that holds its own arrays; only frameworks the user has imported are asked."""
    equinox, nnx = sys.modules.get("equinox"), sys.modules.get("flax.nnx")
    return (equinox is not None and isinstance(obj, equinox.Module)) or (
        nnx is not None and isinstance(obj, (nnx.Module, nnx.State))
    )


def parameters(model: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The floating-point arrays of a model, and how to put answers in their places; other leaves stay."""
    leaves, structure = jax.tree.flatten(model)
    places = [k for k, leaf in enumerate(leaves) if _is_parameter(leaf)]

    def rebuilt(answers: list[Any]) -> Any:
        filled = list(leaves)
        for k, answer in zip(places, answers, strict=True):
            filled[k] = answer
        return jax.tree.unflatten(structure, filled)

    return [leaves[k] for k in places], rebuilt


def _is_parameter(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and compat.is_differentiable(leaf.dtype)
