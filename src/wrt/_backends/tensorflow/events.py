"""What `why` needs to know beside the operations: custom gradients, calls of Python with arrays, tapes of the user's own."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.patching import Make, Patch
from wrt._core.finding import Finding, first_line
from wrt._core.where import Spot, place, spot

Method = Callable[..., Any]


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


class TapeAsked(NamedTuple):
    """One `tape.gradient(targets, sources)`, after so many operations."""

    at: int
    targets: tuple[int, ...]
    sources: tuple[int, ...]
    where: Spot | None


@dataclass(eq=False)
class UserTape:
    """One `with tf.GradientTape()` of the user's: open from operation `start` to `stop`."""

    persistent: bool
    watches_variables: bool
    start: int
    where: Spot | None
    stop: int | None = None
    watched: list[tuple[int, int, Spot | None]] = field(default_factory=list)  # operation, tensor, place
    asked: list[TapeAsked] = field(default_factory=list)
    pauses: list[tuple[int, int]] = field(default_factory=list)  # operations during which it was told not to look

    def covers(self, operation: int) -> bool:
        inside = self.start <= operation and (self.stop is None or operation < self.stop)
        return inside and not any(start <= operation < stop for start, stop in self.pauses)


@dataclass
class Events:
    """What a recording notes for `why`."""

    hosts: list[Host] = field(default_factory=list)
    customs: list[Custom] = field(default_factory=list)
    tapes: list[UserTape] = field(default_factory=list)


@contextmanager
def follow_events(events: Events, count: Callable[[], int], number: Callable[[Any], int]) -> Iterator[None]:
    """Listen at GradientTape and at Python functions that are called with arrays."""
    with follow_tapes(events.tapes, count, number), compat.notice_host_functions(_host(events, count)):
        yield


def custom(op: Any, at: int, inputs: Any, outputs: Any, backward: Any) -> Custom:
    """To be called by what TensorFlow calls to record a gradient."""
    kept = tuple(t for t in inputs if isinstance(t, compat.EagerTensor))
    return Custom(str(op), at, kept, tuple(outputs), backward, spot(sys._getframe(3)))


def _host(events: Events, count: Callable[[], int]) -> Callable[..., None]:
    def note(inputs: Any, outputs: Any) -> None:
        read = (t.handle if isinstance(t, tf.Variable) else t for t in tf.nest.flatten(inputs))
        given = tuple(t for t in read if isinstance(t, compat.EagerTensor))
        made = tuple(t for t in tf.nest.flatten(outputs) if isinstance(t, compat.EagerTensor))
        events.hosts.append(Host(count(), given, made, spot(sys._getframe(2))))

    return note


@contextmanager
def follow_tapes(tapes: list[UserTape], count: Callable[[], int], number: Callable[[Any], int]) -> Iterator[None]:
    """Listen at `tf.GradientTape`: most programs have no tape, for them two methods are enough."""
    with ExitStack() as stack:
        following = TapeFollower(tapes, count, number, stack)
        stack.enter_context(Patch(tf.GradientTape, "__enter__", following.enter))
        stack.enter_context(Patch(tf.GradientTape, "__exit__", following.leave))  # looked up before it is entered
        yield


class TapeFollower:
    """Makes what is called instead of the methods of `tf.GradientTape`; each of them passes every call on."""

    def __init__(self, tapes: list[UserTape], count: Callable[[], int], number: Callable[[Any], int], stack: ExitStack) -> None:
        self.tapes = tapes
        self.count = count  # of the operations that ran so far
        self.number = number  # of a tensor
        self.stack = stack
        self.known: weakref.WeakKeyDictionary[Any, UserTape] = weakref.WeakKeyDictionary()

    def _follow(self, tape: UserTape) -> None:
        if not self.tapes:
            for name, make in self._of_a_tape().items():
                self.stack.enter_context(Patch(tf.GradientTape, name, make))
        self.tapes.append(tape)

    def _of_a_tape(self) -> dict[str, Make]:
        return {
            "watch": self._watch,
            "gradient": self._gradient,
            "jacobian": self._jacobian,
            "batch_jacobian": self._jacobian,
            "stop_recording": self._stop_recording,
        }

    def enter(self, original: Method) -> Method:
        def enter(tape: Any) -> Any:
            result = original(tape)
            if not _is_ours():
                persistent, watches = compat.tape_settings(tape)
                self.known[tape] = UserTape(persistent, watches, self.count(), spot(sys._getframe(1)))
                self._follow(self.known[tape])
            return result

        return enter

    def leave(self, original: Method) -> Method:
        def leave(tape: Any, *reason: Any) -> Any:
            known = self.known.get(tape)
            if known is not None:
                known.stop = self.count()
            return original(tape, *reason)

        return leave

    def _watch(self, original: Method) -> Method:
        def watch(tape: Any, tensor: Any) -> Any:
            known = self.known.get(tape)
            if known is not None:
                here = spot(sys._getframe(1))
                tensors = tf.nest.flatten(tensor, expand_composites=True)
                known.watched += [(self.count(), self.number(t), here) for t in tensors]
            return original(tape, tensor)

        return watch

    def _gradient(self, original: Method) -> Method:
        def gradient(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            known = self._note(tape, target, sources, sys._getframe(1))
            try:
                return original(tape, target, sources, *args, **kwargs)
            except RuntimeError as error:
                if known is not None and len(known.asked) > 1 and not known.persistent:
                    _used_up(error, known.asked[0].where)
                raise

        return gradient

    def _jacobian(self, original: Method) -> Method:
        def jacobian(tape: Any, target: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
            self._note(tape, target, source, sys._getframe(1))
            return original(tape, target, source, *args, **kwargs)

        return jacobian

    def _note(self, tape: Any, target: Any, sources: Any, frame: FrameType) -> UserTape | None:
        known = self.known.get(tape)
        if known is not None:
            asked = TapeAsked(self.count(), self._numbers(target), self._numbers(sources), spot(frame))
            known.asked.append(asked)
        return known

    def _numbers(self, tree: Any) -> tuple[int, ...]:
        return tuple(self.number(tensor) for tensor in tf.nest.flatten(tree) if tensor is not None)

    def _stop_recording(self, original: Method) -> Method:
        @contextmanager
        def stop_recording(tape: Any) -> Iterator[None]:
            known, start = self.known.get(tape), self.count()
            with original(tape):
                yield
            if known is not None:
                known.pauses.append((start, self.count()))

        return stop_recording


def _is_ours() -> bool:
    """Whether wrt itself opens the tape."""
    caller: FrameType | None = sys._getframe(2)
    while caller is not None and caller.f_globals.get("__name__", "") in (Patch.__module__, __name__):
        caller = caller.f_back  # what passes a call on is not who calls
    return compat.is_quiet() or caller is None or caller.f_globals.get("__name__", "").split(".")[0] == "wrt"


def _used_up(error: RuntimeError, first: Spot | None) -> None:
    """TensorFlow's own error also knows the call that used the tape up."""
    where = place(*first) if first else None
    remedy = "write tf.GradientTape(persistent=True), or ask for all gradients in one call"
    words = "this call used up a tape that is not persistent"
    finding = Finding("tape_consumed", words, where, True, first_line(error), remedy)
    error.finding = finding  # type: ignore[attr-defined]
