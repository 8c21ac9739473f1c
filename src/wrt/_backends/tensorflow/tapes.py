"""The tapes of the user's own, while a recording lasts: when they were open, what they watched, what they were asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.standin import Make, stand_in
from wrt._core.finding import Finding
from wrt._core.where import Spot, place, spot

Method = Callable[..., Any]


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


@contextmanager
def tapes_followed(tapes: list[UserTape], count: Callable[[], int], number: Callable[[Any], int]) -> Iterator[None]:
    """Stand in front of `tf.GradientTape`: most programs have no tape, for them two methods are enough."""
    with ExitStack() as stack:
        following = TapesFollowed(tapes, count, number, stack)
        stack.enter_context(stand_in(tf.GradientTape, "__enter__", following.enter))
        stack.enter_context(stand_in(tf.GradientTape, "__exit__", following.leave))  # looked up before it is entered
        yield


class TapesFollowed:
    """Makes what stands in front of the methods of `tf.GradientTape`; each of them passes every call on."""

    def __init__(self, tapes: list[UserTape], count: Callable[[], int], number: Callable[[Any], int], stack: ExitStack) -> None:
        self.tapes = tapes
        self.count = count  # of the operations that ran so far
        self.number = number  # of a tensor
        self.stack = stack

    def _follow(self, tape: UserTape) -> None:
        if not self.tapes:
            for name, make in self._of_a_tape().items():
                self.stack.enter_context(stand_in(tf.GradientTape, name, make))
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
                watches = bool(getattr(tape, "_watch_accessed_variables", True))
                persistent = bool(getattr(tape, "_persistent", False))
                tape._wrt_tape = UserTape(persistent, watches, self.count(), spot(sys._getframe(1)))
                self._follow(tape._wrt_tape)
            return result

        return enter

    def leave(self, original: Method) -> Method:
        def leave(tape: Any, *reason: Any) -> Any:
            known = _known(tape)
            if known is not None:
                known.stop = self.count()
            return original(tape, *reason)

        return leave

    def _watch(self, original: Method) -> Method:
        def watch(tape: Any, tensor: Any) -> Any:
            known = _known(tape)
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
        known = _known(tape)
        if known is not None:
            asked = TapeAsked(self.count(), self._numbers(target), self._numbers(sources), spot(frame))
            known.asked.append(asked)
        return known

    def _numbers(self, tree: Any) -> tuple[int, ...]:
        return tuple(self.number(tensor) for tensor in tf.nest.flatten(tree) if tensor is not None)

    def _stop_recording(self, original: Method) -> Method:
        @contextmanager
        def stop_recording(tape: Any) -> Iterator[None]:
            known, start = _known(tape), self.count()
            with original(tape):
                yield
            if known is not None:
                known.pauses.append((start, self.count()))

        return stop_recording


def _known(tape: Any) -> UserTape | None:
    found: UserTape | None = getattr(tape, "_wrt_tape", None)
    return found


def _is_ours() -> bool:
    """Whether wrt itself opens the tape."""
    caller: FrameType | None = sys._getframe(2)
    while caller is not None and caller.f_globals.get("__name__", "") in (stand_in.__module__, __name__):
        caller = caller.f_back  # those who stand in are not those who call
    return compat.is_quiet() or caller is None or caller.f_globals.get("__name__", "").split(".")[0] == "wrt"


def _used_up(error: RuntimeError, first: Spot | None) -> None:
    """TensorFlow's own error also knows the call that used the tape up."""
    where = place(*first) if first else None
    remedy = "write tf.GradientTape(persistent=True), or ask for all gradients in one call"
    said = str(error).strip().splitlines()[0][:160]
    finding = Finding("tape_consumed", "this call used up a tape that is not persistent", where, True, said, remedy)
    error.finding = finding  # type: ignore[attr-defined]
