"""The user's own tapes and custom gradients, and calls of Python with arrays: noted while a recording lasts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

import tensorflow as tf

from wrt._backends.tensorflow import compat, noticed
from wrt._backends.tensorflow.standin import stand_in
from wrt._core.finding import Finding
from wrt._core.where import Spot, place, spot


@dataclass(eq=False)
class UserTape:
    """One `with tf.GradientTape()` of the user's: open from operation `start` to `stop`."""

    persistent: bool
    watches_variables: bool
    start: int
    where: Spot | None
    stop: int | None = None
    watched: list[tuple[int, int, Spot | None]] = field(default_factory=list)  # operation, tensor, place
    asked: list[tuple[int, tuple[int, ...], Spot | None]] = field(default_factory=list)  # operation, targets, place
    pauses: list[tuple[int, int]] = field(default_factory=list)  # operations during which it was told not to look

    def covers(self, operation: int) -> bool:
        inside = self.start <= operation and (self.stop is None or operation < self.stop)
        return inside and not any(start <= operation < stop for start, stop in self.pauses)


class Custom(NamedTuple):
    """A gradient that somebody wrote by hand: from these tensors to those, after so many operations."""

    name: str
    at: int
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    backward: Callable[..., Any]
    spot: Spot | None


class Host(NamedTuple):
    """A Python function that TensorFlow called with arrays, and what it gave back."""

    at: int
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    spot: Spot | None


@dataclass
class Notes:
    """What a recording notes for `why`."""

    hosts: list[Host] = field(default_factory=list)
    customs: list[Custom] = field(default_factory=list)
    tapes: list[UserTape] = field(default_factory=list)


@contextmanager
def followed(notes: Notes, count: Callable[[], int], number: Callable[[Any], int]) -> Iterator[None]:
    """Stand in front of GradientTape and of custom gradients."""
    with ExitStack() as stack:
        stack.enter_context(_tapes(notes, count, number))
        stack.enter_context(noticed.whole_gradients(_custom(notes, count)))
        stack.enter_context(noticed.host_functions(_host(notes, count)))
        yield


def _custom(notes: Notes, count: Callable[[], int]) -> Callable[..., None]:
    def note(op: Any, outputs: Any, inputs: Any, backward: Any) -> None:
        if not compat.is_quiet() and callable(backward):
            kept = tuple(t for t in inputs if isinstance(t, compat.EagerTensor))
            notes.customs.append(Custom(str(op), count(), kept, tuple(outputs), backward, spot(sys._getframe(2))))

    return note


def _host(notes: Notes, count: Callable[[], int]) -> Callable[..., None]:
    def note(inputs: Any, outputs: Any) -> None:
        read = (t.handle if isinstance(t, tf.Variable) else t for t in tf.nest.flatten(inputs))
        given = tuple(t for t in read if isinstance(t, compat.EagerTensor))
        made = tuple(t for t in tf.nest.flatten(outputs) if isinstance(t, compat.EagerTensor))
        notes.hosts.append(Host(count(), given, made, spot(sys._getframe(2))))

    return note


def _used_up(error: RuntimeError, first: Spot | None) -> None:
    """TensorFlow's own error also knows the call that used the tape up."""
    where = place(*first) if first else None
    remedy = "write tf.GradientTape(persistent=True), or ask for all gradients in one call"
    said = str(error).strip().splitlines()[0][:160]
    finding = Finding("tape_consumed", "this call used up a tape that is not persistent", where, True, said, remedy)
    error.finding = finding  # type: ignore[attr-defined]


@contextmanager
def _tapes(notes: Notes, count: Callable[[], int], number: Callable[[Any], int]) -> Iterator[None]:
    before: dict[str, Callable[..., Any]] = {}

    def ours() -> bool:
        caller: FrameType | None = sys._getframe(2)
        while caller is not None and caller.f_globals.get("__name__", "") in (stand_in.__module__, __name__):
            caller = caller.f_back  # those who stand in are not those who call
        return compat.is_quiet() or caller is None or caller.f_globals.get("__name__", "").split(".")[0] == "wrt"

    def enter(self: Any) -> Any:
        result = before["__enter__"](self)
        if not ours():
            watches = bool(getattr(self, "_watch_accessed_variables", True))
            persistent = bool(getattr(self, "_persistent", False))
            self._wrt_tape = UserTape(persistent, watches, count(), spot(sys._getframe(1)))
            notes.tapes.append(self._wrt_tape)
        return result

    def leave(self: Any, *reason: Any) -> Any:
        tape = getattr(self, "_wrt_tape", None)
        if tape is not None:
            tape.stop = count()
        return before["__exit__"](self, *reason)

    def watch(self: Any, tensor: Any) -> Any:
        tape = getattr(self, "_wrt_tape", None)
        if tape is not None:
            here = spot(sys._getframe(1))
            tape.watched += [(count(), number(t), here) for t in tf.nest.flatten(tensor, expand_composites=True)]
        return before["watch"](self, tensor)

    def gradient(self: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        tape = getattr(self, "_wrt_tape", None)
        if tape is not None:
            asked = tuple(number(t) for t in tf.nest.flatten(target))
            tape.asked.append((count(), asked, spot(sys._getframe(1))))
        try:
            return before["gradient"](self, target, *args, **kwargs)
        except RuntimeError as error:
            if tape is not None and len(tape.asked) > 1 and not tape.persistent:
                _used_up(error, tape.asked[0][2])
            raise

    @contextmanager
    def stop_recording(self: Any) -> Iterator[None]:
        tape, start = getattr(self, "_wrt_tape", None), count()
        with before["stop_recording"](self):
            yield
        if tape is not None:
            tape.pauses.append((start, count()))

    def instead(name: str, replacement: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            before[name] = original
            return replacement

        return make

    replacements: dict[str, Callable[..., Any]] = {
        "__enter__": enter,
        "__exit__": leave,
        "watch": watch,
        "gradient": gradient,
        "stop_recording": stop_recording,
    }
    with ExitStack() as stack:
        for name, replacement in replacements.items():
            stack.enter_context(stand_in(tf.GradientTape, name, instead(name, replacement)))
        yield
