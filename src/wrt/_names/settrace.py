"""Watching one thread by `sys.settrace`: Python 3.11, and later where no tool number of `sys.monitoring` is free.

Debuggers and coverage use the same door. What was installed before is called first with every event it would have had,
may change its mind as it likes, and stands alone again when the watch ends.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType, FrameType
from typing import Any

from wrt._core.where import machine_made, user_files, user_frames
from wrt._names.frame_names import FrameNames
from wrt._names.observer import Observer
from wrt._names.stores import PROTOCOL

_RESUMABLE = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR

CLOSED: dict[CodeType, Callable[[FrameType], bool]] = {}
"""Functions of a framework, each with what tells of a call whether nothing of the user's is called in it.

The watch is off from there on: it is taken up by the `hushed` stretch that the framework comes to next.
"""

_OFF = threading.local()  # its `watch` was switched off at a call that is CLOSED


class SettraceWatch:
    """The global trace function while the watch is on: chooses the frames worth watching."""

    __slots__ = ("observer", "open", "previous", "previous_failed", "standing")

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.open = False
        self.previous: Any = None
        self.previous_failed = False
        self.standing: list[tuple[FrameType, _Local]] = []

    def start(self, frame: FrameType | None) -> None:
        """Watch from here on: this frame, those that wait for it, and all that will be called."""
        self.previous = sys.gettrace()
        self.open = True
        try:
            for waiting in user_frames(frame):
                local = _Local(self, waiting, waiting.f_trace)
                self.standing.append((waiting, local))
                local.take_over(waiting)
            sys.settrace(self)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Look a last time, then leave everything as it was found."""
        current = sys.gettrace()
        # None: an exception inside a trace function switched tracing off. Unless it was its own, put it back.
        if current is self or (current is None and not self.previous_failed):
            sys.settrace(self.previous)
        self.open = False
        if getattr(_OFF, "watch", None) is self:
            _OFF.watch = None
        for frame, local in self.standing:
            local.give_back(frame)
        standing, self.standing = self.standing, []
        for frame, local in standing:
            local.names.finish(frame)

    def go_on(self) -> None:
        """The end of `hushed`."""
        sys.settrace(self)

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        watched = user_files[code.co_filename]
        if self.previous is None and not watched and self.open:  # most calls are the library's own
            closed = CLOSED.get(code)
            if closed is not None and closed(frame):
                _OFF.watch = self
                sys.settrace(None)
            return None
        watched = watched and code.co_name not in PROTOCOL and not machine_made(code)
        if not self.open:
            return self._closed(frame, event, arg)
        if self.previous is None:
            return self._local(frame, None) if watched else None
        forward = self.hand_on(self.previous, frame, event, arg)
        return self._local(frame, forward) if watched else forward

    def hand_on(self, function: Any, frame: FrameType, event: str, arg: Any) -> Any:
        """Call a trace function that was there before us."""
        before = sys.gettrace()
        try:
            result = function(frame, event, arg)
        except BaseException:
            self.previous_failed = True
            raise
        after = sys.gettrace()
        if after is not before:  # coverage puts its C function back in place, a debugger lets go: stay, and follow them
            self.previous = after
            sys.settrace(before)
        return result

    def _local(self, frame: FrameType, forward: Any) -> _Local:
        if frame.f_code.co_flags & _RESUMABLE and _goes_on(frame):
            return self._local_again(frame, forward)
        local = _Local(self, frame, forward)
        local.names.called(frame)
        return local

    def _local_again(self, frame: FrameType, forward: Any) -> _Local:
        local = self._ours(frame.f_trace)
        if local is None:
            local = _Local(self, frame, forward)
            local.names.went_on(frame)
        local.forward = forward
        return local

    def _ours(self, function: Any) -> _Local | None:
        while isinstance(function, _Local):
            if function.watch is self:
                return function
            function = function.forward
        return None

    def _closed(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Still in place after the end, because a watch that began later was still on: step aside now."""
        installed: Any = sys.gettrace()
        if installed is self:
            sys.settrace(self.previous)
        return None if self.previous is None else self.previous(frame, event, arg)


def hushed() -> SettraceWatch | None:
    """The watch of this thread, off until it is told to `go_on`; None where there is none, or others look on with it.

    For a stretch in which nothing of the user's is called: every call in it would be an event.
    """
    watch = sys.gettrace()
    if watch is None:
        watch, _OFF.watch = getattr(_OFF, "watch", None), None
    if type(watch) is not SettraceWatch or watch.previous is not None or not watch.open:
        return None
    sys.settrace(None)
    return watch


class _Local:
    """The local trace function of one watched frame."""

    __slots__ = ("by_instruction", "forward", "names", "opcodes", "watch")

    def __init__(self, watch: SettraceWatch, frame: FrameType, forward: Any) -> None:
        self.watch = watch
        self.forward = forward
        self.names = FrameNames(watch.observer, frame.f_code)
        self.by_instruction = False
        self.opcodes = frame.f_trace_opcodes  # whether those before us wanted an event per instruction

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self.forward is not None:
            self._hand_on(frame, event, arg)
        elif event == "line" and self.watch.open:
            crowded = self.names.entered(frame, frame.f_lineno)
            if crowded is not self.by_instruction:
                self._by_instruction(frame, crowded)
            return self
        if not self.watch.open:
            self.give_back(frame)
            return self.forward
        if event == "line":
            crowded = self.names.entered(frame, frame.f_lineno)
            if crowded is not self.by_instruction:
                self._by_instruction(frame, crowded)
        elif event == "opcode":
            if self.by_instruction:
                self.names.stepped(frame, frame.f_lasti)
        elif event == "return":
            self.names.returned(frame, arg)
        return self

    def take_over(self, frame: FrameType) -> None:
        """Watch a frame that is running already."""
        self.names.went_on(frame)
        look = self.names.lines.get(frame.f_lineno)
        self._by_instruction(frame, look is not None and look.crowded)
        frame.f_trace = self

    def give_back(self, frame: FrameType) -> None:
        """Leave the frame to those before us, unless somebody else has taken it since."""
        frame.f_trace_opcodes = self.opcodes
        if frame.f_trace is self or frame.f_trace is None:
            frame.f_trace = self.forward

    def _by_instruction(self, frame: FrameType, wanted: bool) -> None:
        self.by_instruction = wanted
        frame.f_trace_opcodes = wanted or self.opcodes

    def _hand_on(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "opcode" and not self.opcodes:
            return
        before = frame.f_trace
        result = self.watch.hand_on(self.forward, frame, event, arg)
        if frame.f_trace is not before:  # a debugger may set it by hand
            result = self.forward = frame.f_trace
        if result is not None:  # to Python, None means "as before"
            self.forward = result


def _goes_on(frame: FrameType) -> bool:
    """Whether a generator is being resumed, rather than started."""
    resume = frame.f_code.co_code[frame.f_lasti + 1]
    return bool(resume & 3)  # RESUME says why: 0 at the start, 1 to 3 after yield, yield from and await
