"""Which parameters of operations mean the same: those of a second recording of the same code are other objects.

JAX reads the body of a loop anew where it is a lambda, and wraps a rule of the user's own anew at every call. Jaxprs are
compared operation by operation, wrappers by what they wrap; a function of the user's own is equal to itself alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from types import FunctionType
from typing import Any

import numpy as np

from wrt._backends.jax import compat


class Structure:
    """Parts that are compared; their hash is known."""

    __slots__ = ("__weakref__", "_hash", "_parts")

    def __init__(self, parts: Hashable) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Structure) and self._hash == other._hash and self._parts == other._parts


class Alike:
    """A parameter, equal to others of the same structure."""

    __slots__ = ("structure", "thing")

    def __init__(self, thing: Any, structure: Hashable) -> None:
        self.thing, self.structure = thing, structure

    def __hash__(self) -> int:
        return hash(self.structure)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike) and self.structure == other.structure


class Only:
    """A thing that is equal to itself alone."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Only) and self.thing is other.thing


_KNOWN: weakref.WeakKeyDictionary[Any, Structure] = weakref.WeakKeyDictionary()


def comparable(params: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Parameters of an operation as something that can be looked up."""
    return tuple((name, given if type(given) in _PLAIN else Alike(given, _structure(given))) for name, given in params.items())


_PLAIN = frozenset({bool, int, float, str, type(None)})


def _structure(thing: Any) -> Hashable:
    if isinstance(thing, (tuple, list)):
        return type(thing).__name__, tuple(map(_structure, thing))
    if isinstance(thing, dict):
        return "dict", tuple((name, _structure(one)) for name, one in thing.items())
    if isinstance(thing, compat.ClosedJaxpr):
        return "closed", _of_jaxpr(thing.jaxpr), tuple(map(Only, thing.consts))
    if isinstance(thing, compat.Jaxpr):
        return _of_jaxpr(thing)
    if isinstance(thing, compat.WrappedFun):
        return "wrapped", _structure(thing.f), tuple((how, _structure(given)) for how, given in thing.transforms), thing.in_type
    if isinstance(thing, compat.BOOKKEEPING) or type(thing) is object:
        return str(type(thing))
    if isinstance(thing, FunctionType) and thing.__module__.startswith("jax.") and thing.__closure__:
        return "wrapper", thing.__code__, _held(thing)
    try:
        hash(thing)
    except TypeError:
        return Only(thing)
    return Only(thing) if callable(thing) else thing


def _held(wrapper: FunctionType) -> Hashable:
    """What a wrapper of JAX's own closes over; of one that remembers its results, not these."""
    held = [cell.cell_contents for cell in wrapper.__closure__ or ()]
    if wrapper.__qualname__ == compat.REMEMBERS:
        held = [one for one in held if not isinstance(one, dict)]
    return tuple(map(_structure, held))


def _of_jaxpr(jaxpr: Any) -> Structure:
    found = _KNOWN.get(jaxpr)
    if found is None:
        found = _KNOWN[jaxpr] = Structure(_parts(jaxpr))
    return found


def _parts(jaxpr: Any) -> Hashable:
    numbers: dict[Any, int] = {}

    def read(atom: Any) -> Hashable:
        if isinstance(atom, compat.Literal):
            return atom.aval, np.asarray(atom.val).tobytes()
        return numbers.setdefault(atom, len(numbers))

    given = tuple((read(v), v.aval) for v in (*jaxpr.constvars, *jaxpr.invars))
    steps = tuple(
        (
            eqn.primitive,
            comparable(eqn.params),
            eqn.ctx,
            tuple(map(read, eqn.invars)),
            tuple((read(v), v.aval) for v in eqn.outvars),
        )
        for eqn in jaxpr.eqns
    )
    return len(jaxpr.constvars), given, steps, tuple(map(read, jaxpr.outvars)), frozenset(map(str, jaxpr.effects))
