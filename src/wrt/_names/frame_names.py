"""What the names of one running frame mean, and what has changed since the last look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType
from typing import Any, TypeAlias

from wrt._core.thresholds import FEW_ITEMS
from wrt._names.observer import Contents, Observer, Reference
from wrt._names.peek import MISSING, attribute, container_type, item, items, length
from wrt._names.stores import Constant, Look, Store, stores_of
from wrt._names.thresholds import CONTAINER_DEPTH

Sink: TypeAlias = Callable[[str, Any, int], None]


class FrameNames:
    """The names of one frame: objects are compared by identity, each new binding is reported once.

    A name is looked at when its line is over, that is, when the next one starts.
    """

    __slots__ = ("code", "function", "lengths", "lines", "observer", "pending", "seen", "unsure")

    def __init__(self, observer: Observer, code: CodeType) -> None:
        self.observer = observer
        self.code = code
        self.function = observer.function(code)
        self.lines = self.function.stores.lines
        self.pending: Look | None = None
        self.seen: dict[str, Reference] = {}
        self.lengths: dict[str, int] | None = None  # of the containers met
        self.unsure: set[int] | None = None  # for a frame that was running before: lines entered since

    def called(self, frame: FrameType) -> None:
        """The frame starts: report its arguments.

        Weights go into the same function again and again: what it was called with the last time is not news, unless the
        name has meant something else in between.
        """
        names, last_call = self.function.stores.arguments, self.function.arguments
        if names:
            scope, kinds, last = frame.f_locals, self.observer.kinds, self.observer.last
            for name in names:
                value = scope.get(name)  # one that an inner function shares is not there before its cell is made
                kind = kinds.get(type(value))
                if kind == "tensor":
                    known = last_call.get(name)
                    if known is None or last.get(name) is not known or known() is not value:
                        known = last_call[name] = self.observer.report(name, value, self.code, frame.f_lasti)
                    self.seen[name] = known
                elif kind != "neither":
                    self._argument_container(name, value, frame.f_lasti)

    def went_on(self, frame: FrameType) -> None:
        """The frame was running before we saw it: what was bound before is not news."""
        self.unsure = set()
        self.entered(frame, frame.f_lineno)

    def entered(self, frame: FrameType, line: int) -> bool:
        """A line starts: report what the line before it bound. True if this one needs a look after each instruction."""
        if self.pending is not None:
            self.look(frame, self.pending)
        self.pending = look = self.lines.get(line)
        if look is None:
            return False
        if self.unsure is not None and line not in self.unsure:
            self.unsure.add(line)
            self._remember(frame, look)
        return look.crowded

    def stepped(self, frame: FrameType, offset: int) -> None:
        """An instruction of a crowded line starts: report what the one before it bound."""
        look = self.function.stores.after.get(offset)
        if look is not None:
            self.look(frame, look)

    def returned(self, frame: FrameType, value: Any) -> None:
        """The frame returns or yields: report the value as `name()`, and containers filled behind the frame's back."""
        self.finish(frame)
        if self.lengths and self.code.co_flags & CO_OPTIMIZED:
            self._recount(frame, self.lengths)
        if value is not None and self.function.stores.returns:
            self._value(self.function.stores.returns, value, frame.f_lasti, self._bind)

    def finish(self, frame: FrameType) -> None:
        """Report what the last line bound."""
        pending, self.pending = self.pending, None
        if pending is not None:
            self.look(frame, pending)

    def look(self, frame: FrameType, look: Look) -> None:
        """Report what these stores have bound, if they have."""
        scope = frame.f_locals  # before 3.13 a copy, which keeps what was deleted until it is asked for again
        kinds, seen = self.observer.kinds, self.seen
        for name, offset in look.names:
            value = scope.get(name, MISSING)
            if value is MISSING:
                value = frame.f_globals.get(name)
            kind = kinds.get(type(value))
            if kind == "tensor":
                known = seen.get(name)
                if known is None or known() is not value:
                    seen[name] = self.observer.report(name, value, self.code, offset)
            elif kind != "neither":
                self._value(name, value, offset, self._bind)
        for store in look.others:
            root = store.path[0]
            value = scope.get(root, MISSING)
            if value is MISSING:
                value = frame.f_globals.get(root)
            if store.how == "append" and len(store.path) == 1:
                if type(value) is list:
                    self._appended(store, value)
            else:
                self._look_deeper(store, value, scope)

    def _look_deeper(self, store: Store, value: Any, scope: Mapping[str, Any]) -> None:
        if len(store.path) > 1:
            value = attribute(value, store.path[1:])
        if store.how == "bind":
            self._value(store.label, value, store.offset, self._bind)
        elif store.how == "append":
            if type(value) is list:
                self._appended(store, value)
        elif store.how != "drop" and self.observer.kind_of(value) == "container":
            self._changed(store, value, scope)

    def _remember(self, frame: FrameType, look: Look) -> None:
        """Look with nobody listening."""
        listening, self.observer = self.observer, Observer(self.observer.is_tensor, lambda binding: None)
        self.observer.kinds = listening.kinds
        self.look(frame, look)
        self.observer = listening

    def _value(self, label: str, value: Any, offset: int, sink: Sink, depth: int = CONTAINER_DEPTH) -> None:
        kind = self.observer.kind_of(value)
        if kind == "tensor":
            sink(label, value, offset)
        elif kind == "container" and depth:
            self._fill(label, value, offset, sink, depth)

    def _bind(self, label: str, tensor: Any, offset: int) -> None:
        known = self.seen.get(label) or self.function.arguments.get(label)
        if known is None or known() is not tensor:
            known = self.observer.report(label, tensor, self.code, offset)
        self.seen[label] = known

    def _argument(self, label: str, tensor: Any, offset: int) -> None:
        known = self.function.arguments.get(label)
        if known is None or self.observer.last.get(label) is not known or known() is not tensor:
            known = self.function.arguments[label] = self.observer.report(label, tensor, self.code, offset)
        self.seen[label] = known

    def _argument_container(self, name: str, value: Any, offset: int) -> None:
        if self.observer.kind_of(value) != "container":
            self._value(name, value, offset, self._argument)  # a type met for the first time
            return
        known, last = self.function.containers.get(name), self.observer.last
        if known is not None and last.get(name) is known and known.same_as(value):
            self._count(name, length(value))
        else:
            self._fill(name, value, offset, self._argument)
            # A tuple is made for the call; a list or a dict may be the same again.
            if type(value) is not tuple and all(self.observer.kind_of(inner) == "tensor" for _, inner in items(value)):
                last[name] = self.function.containers[name] = Contents(value)

    def _fill(self, label: str, container: Any, offset: int, sink: Sink, depth: int = CONTAINER_DEPTH) -> None:
        self._count(label, length(container))
        for key, value in items(container):
            self._value(f"{label}[{key!r}]", value, offset, sink, depth - 1)

    def _changed(self, store: Store, container: Any, scope: Mapping[str, Any]) -> None:
        self.observer.last.pop(store.label, None)  # the container is not what it was
        key = store.key.value if isinstance(store.key, Constant) else scope.get(store.key or "", None)
        found = item(container, key)
        if found is MISSING:
            return self._fill(store.label, container, store.offset, self._bind)
        self._count(store.label, length(container))
        if type(key) is int and key < 0 and container_type(container) is not dict:
            key += length(container)
        self._value(f"{store.label}[{key!r}]", found, store.offset, self._bind, CONTAINER_DEPTH - 1)

    def _appended(self, store: Store, container: list[Any]) -> None:
        now, label = len(container), store.label
        before = self._count(label, now)
        for index in range(max(before if before < now else now - 1, now - FEW_ITEMS, 0), now):
            value = container[index]
            if self.observer.kinds.get(type(value)) != "neither":
                self._value(f"{label}[{index}]", value, store.offset, self._bind, CONTAINER_DEPTH - 1)

    def _count(self, label: str, now: int) -> int:
        """Note the length of a container, and return the one it had."""
        if self.lengths is None:
            self.lengths = {}
        before = self.lengths.get(label, now)
        self.lengths[label] = now
        return before

    def _recount(self, frame: FrameType, lengths: dict[str, int]) -> None:
        for name, value in frame.f_locals.items():
            if type(value) in (list, dict) and len(value) != lengths.get(name, len(value)):
                self._fill(name, value, frame.f_lasti, self._bind)


def visible_tensors(frame: FrameType, is_tensor: Callable[[Any], bool]) -> dict[str, Any]:
    """The tensors that the names in a frame's code mean now. Reads the code, not the namespace, which may be huge."""
    observer, scope, found = Observer(is_tensor, lambda binding: None), frame.f_locals, {}
    for name in sorted(stores_of(frame.f_code).loaded):
        value = scope.get(name, MISSING)
        if value is MISSING:
            value = frame.f_globals.get(name)
        if observer.kind_of(value) == "tensor":
            found[name] = value
    return found
