"""What one watch knows across all its frames: who listens, which types are tensors, what was reported last."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import islice
from operator import call, is_
from types import CodeType
from typing import Any, Literal, TypeAlias

from wrt._core.bindings import Binding
from wrt._core.thresholds import FEW_ITEMS
from wrt._names.peek import container_type
from wrt._names.stores import Stores, stores_of

Reference: TypeAlias = Callable[[], Any]  # gives the tensor while it lives, then None
Note: TypeAlias = Callable[[str, Any, CodeType, int], Reference]

Kind: TypeAlias = Literal["tensor", "container", "neither"]


class Observer:
    """Who wants to know, and what counts as a tensor: asked once per type.

    Holds weak references alone: it keeps no tensor alive. A listener that wants it quick gives `note`, which gets the
    parts of a binding and returns a reference to the tensor.
    """

    __slots__ = ("count", "functions", "is_tensor", "kinds", "last", "note", "on_bind")

    def __init__(
        self, is_tensor: Callable[[Any], bool], on_bind: Callable[[Binding], object], note: Note | None = None
    ) -> None:
        self.is_tensor = is_tensor
        self.on_bind = on_bind
        self.note = note
        self.count = 0
        self.kinds: dict[type, Kind] = {type(None): "neither"}
        self.last: dict[str, object] = {}
        self.functions: dict[int, Function] = {}  # by the id of the code, which the function keeps alive

    def function(self, code: CodeType) -> Function:
        found = self.functions.get(id(code))
        if found is None:
            found = self.functions[id(code)] = Function(code)
        return found

    def kind_of(self, value: Any) -> Kind:
        kind = self.kinds.get(type(value))
        if kind is None:
            try:
                kind = "tensor" if self.is_tensor(value) else "container" if container_type(value) else "neither"
            except Exception:  # a lazy proxy may refuse to say what it is
                kind = "neither"
            self.kinds[type(value)] = kind
        return kind

    def report(self, label: str, tensor: Any, code: CodeType, offset: int) -> Reference:
        """Tell the listener; what comes back recognizes the tensor later."""
        if self.note is not None:
            noted = self.last[label] = self.note(label, tensor, code, offset)
            return noted
        try:
            reference: Reference = weakref.ref(tensor)
        except TypeError:  # `refer` itself would be one call more, for every binding of a run
            reference = refer(tensor)
        self.last[label] = reference
        self.count = count = self.count + 1
        self.on_bind(Binding(label, tensor, code, offset, count))
        return reference

    def let_go(self) -> None:
        """Nobody listens any more: frames may hold this until the next garbage collection, the listener may not."""
        self.on_bind, self.note = _nobody, None


def _nobody(binding: Binding) -> None:
    pass


class Function:
    """What is known of one function: its stores, and what its arguments were in the last call."""

    __slots__ = ("arguments", "code", "containers", "stores")

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.stores: Stores = stores_of(code)
        self.arguments: dict[str, Reference] = {}
        self.containers: dict[str, Contents] = {}


class Contents:
    """The tensors that a container held, weakly; to see at C speed whether they are still the same."""

    __slots__ = ("keys", "references")

    def __init__(self, container: Any) -> None:
        self.keys = _keys(container)
        self.references = tuple(map(refer, _values(container)))

    def same_as(self, container: Any) -> bool:
        values = _values(container)
        return (
            len(values) == len(self.references)
            and all(map(is_, map(call, self.references), values))
            and self.keys == _keys(container)
        )


def refer(tensor: Any) -> Reference:
    try:
        return weakref.ref(tensor)
    except TypeError:  # nothing weak to be had: better keep it than mistake the next tensor at its address for it
        return lambda: tensor


def _values(container: Any) -> list[Any]:
    kind = container_type(container)
    return list(islice(dict.values(container) if kind is dict else kind.__iter__(container), FEW_ITEMS))


def _keys(container: Any) -> list[Any]:
    return list(islice(dict.keys(container), FEW_ITEMS)) if container_type(container) is dict else []
