"""JAX as a backend: what it owns and how a run is recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax

from wrt._backends.jax.arrays import JaxArrays
from wrt._backends.jax.models import is_model, parameters
from wrt._backends.jax.record import RECENT, RUNNING, BareRecord, JaxRecord
from wrt._core.protocol import Arrays, Capability, Recording
from wrt._core.value import Value
from wrt.errors import EngineRefused


class JaxBackend:
    name = "jax"
    takes_numbers = True
    writes_in_place = False
    arrays: Arrays = JaxArrays()

    def __init__(self) -> None:
        self.bare = BareRecord(self)

    def owns(self, obj: Any) -> bool:
        return isinstance(obj, jax.Array) or is_model(obj)

    def lift(self, obj: Any) -> Value:
        return self.bare.lift(obj)

    def recorded(self, obj: Any) -> Value | None:
        for known in RECENT:
            record = known()
            value = None if record is None else record.find(obj)
            if value is not None:
                return value
        return None

    def tree(self, obj: Any) -> tuple[list[Any], Callable[[list[Any]], Any]] | None:
        """The arrays of a pytree, and how to put answers in their places."""
        if is_model(obj):
            return parameters(obj)
        leaves, structure = jax.tree.flatten(obj)
        if len(leaves) == 1 and leaves[0] is obj:
            return None
        return leaves, lambda answers: jax.tree.unflatten(structure, answers)

    def trace(self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, values: bool = False) -> Recording:
        """Run f once and remember every operation; its numbers can always be had, `values` or not."""
        record = JaxRecord(self)
        record.run(f, args, kwargs)
        return record

    def record(self, **options: Any) -> AbstractContextManager[Recording]:
        raise EngineRefused(
            "`with wrt.record():` cannot see what JAX does",
            "operations on JAX arrays leave no trace outside a transformation",
            "put the block into a function f and write t = wrt.trace(f, x)",
        )

    def tap(self, name: str, tensor: Any, frame: Any) -> None:
        for record in RUNNING:
            record.naming.tap(name, tensor, frame)

    def capabilities(self) -> dict[Capability, str]:
        return {
            "record": "operations on JAX arrays leave no trace outside a transformation; write t = wrt.trace(f, x)",
        }


BACKEND = JaxBackend()
