"""A model of JAX while it runs and learns: its gradients by name, and out of functions that are being compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import jax

from wrt._backends.jax import compat
from wrt._backends.jax.models import is_model, named_arrays


def kept(objects: Sequence[Any]) -> AbstractContextManager[None]:
    """A model in JAX is a pure function: running it changes nothing."""
    return nullcontext()


@contextmanager
def stepping(model: Any, due: Callable[[], bool], saw: Any, missed: Any) -> Iterator[None]:
    """JAX has no place where gradients pass by; in the end, what compiled functions still have to say is waited for."""
    try:
        yield
    finally:
        jax.effects_barrier()


def later(gradients: Any, call: Callable[[Any], None]) -> bool:
    """Inside `jit`, where gradients have no numbers yet: have them handed over when it runs. False outside."""
    if not any(isinstance(leaf, compat.Tracer) for leaf in jax.tree.leaves(gradients)):
        return False
    jax.debug.callback(call, gradients)
    return True


def named(gradients: Any) -> list[tuple[str, Any]] | None:
    """The gradients of an Equinox or NNX model, or of a state of one, by their paths; None for plain containers."""
    if is_model(gradients):
        return list(named_arrays(gradients))
    leaves = jax.tree_util.tree_flatten_with_path(gradients)[0]
    if isinstance(gradients, (dict, list, tuple)) or jax.tree_util.all_leaves([gradients]) or not leaves:
        return None
    return [(jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value"), leaf) for path, leaf in leaves]
