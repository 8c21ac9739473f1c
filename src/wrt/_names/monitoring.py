"""Watching one thread by `sys.monitoring`: Python 3.12 and newer.

Nothing is shared with debuggers and coverage there, so nothing has to be handed on; library code switches its events
off after the first one. Six tools can exist in a process, therefore all watches of all threads are one tool.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import RLock, get_ident
from types import CodeType, FrameType
from typing import Any, TypeAlias

from wrt._core.where import machine_made, user_files, user_frames
from wrt._names.frame_names import FrameNames
from wrt._names.observer import Observer
from wrt._names.stores import PROTOCOL, stores_of

_monitoring: Any = getattr(sys, "monitoring", None)


class MonitoringWatch:
    """The watched frames of one watch in one thread."""

    __slots__ = ("frames", "observer", "open", "standing", "thread")

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.open = False
        self.frames: dict[int, FrameNames] = {}
        self.standing: list[FrameType] = []
        self.thread = 0

    def start(self, frame: FrameType | None) -> None:
        """Watch from here on: this frame, those that wait for it, and all that will be called."""
        self.thread = get_ident()
        self.standing = list(user_frames(frame))
        for waiting in self.standing:
            self.went_on(waiting)
        _tool.join(self)

    def stop(self) -> None:
        """Look a last time, then leave everything as it was found."""
        failed = not self.open
        _tool.leave(self)
        standing, self.standing = self.standing, []
        for frame in standing:
            if not failed:
                self._names(frame).finish(frame)
        self.frames.clear()

    def called(self, frame: FrameType, _: Any = None) -> None:
        names = self.frames[id(frame)] = FrameNames(self.observer, frame.f_code)
        names.called(frame)

    def went_on(self, frame: FrameType, _: Any = None) -> None:
        names = self.frames[id(frame)] = FrameNames(self.observer, frame.f_code)
        names.went_on(frame)

    def entered(self, frame: FrameType, line: int) -> None:
        self._names(frame).entered(frame, line)

    def stepped(self, frame: FrameType, offset: int) -> None:
        self._names(frame).stepped(frame, offset)

    def returned(self, frame: FrameType, value: Any) -> None:
        self._names(frame).returned(frame, value)
        del self.frames[id(frame)]  # the next frame may live at the same address

    def _names(self, frame: FrameType) -> FrameNames:
        if id(frame) not in self.frames:  # resumed by an exception thrown into it
            self.went_on(frame)
        return self.frames[id(frame)]


class _Tool:
    """Our one registration with `sys.monitoring`, there while any watch is on."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.watches: dict[int, list[MonitoringWatch]] = {}  # by thread, the outermost first
        self.codes: dict[int, CodeType] = {}
        self.lock = RLock()

    def join(self, watch: MonitoringWatch) -> None:
        with self.lock:
            if self.number is None:
                self._register()
            self.watches[watch.thread] = [*self.watches.get(watch.thread, ()), watch]
            watch.open = True
            for frame in watch.standing:
                self._follow(frame.f_code)

    def leave(self, watch: MonitoringWatch) -> None:
        with self.lock:
            watch.open = False
            rest = [other for other in self.watches.get(watch.thread, ()) if other is not watch]
            self.watches[watch.thread] = rest
            if not rest:
                del self.watches[watch.thread]
            if not self.watches and self.number is not None:
                self._unregister()

    def _register(self) -> None:
        self.number = free_number()
        _monitoring.use_tool_id(self.number, "wrt")
        for event, callback in self._callbacks().items():
            _monitoring.register_callback(self.number, event, callback)
        events = _monitoring.events
        _monitoring.set_events(self.number, events.PY_START | events.PY_RESUME)

    def _unregister(self) -> None:
        _monitoring.set_events(self.number, 0)
        for code in self.codes.values():
            _monitoring.set_local_events(self.number, code, 0)
        for event in self._callbacks():
            _monitoring.register_callback(self.number, event, None)
        _monitoring.free_tool_id(self.number)
        self.codes.clear()
        self.number = None

    def _callbacks(self) -> dict[int, Any]:
        events = _monitoring.events
        return {
            events.PY_START: self.on_start,
            events.PY_RESUME: self.on_resume,
            events.LINE: self.on_line,
            events.INSTRUCTION: self.on_instruction,
            events.PY_RETURN: self.on_return,
            events.PY_YIELD: self.on_return,
        }

    def _follow(self, code: CodeType) -> None:
        """Ask for the events inside one function."""
        if id(code) not in self.codes:
            events = _monitoring.events
            wanted, stores = events.PY_RETURN | events.PY_YIELD, stores_of(code)
            if stores.lines:
                wanted |= events.LINE
            if stores.crowded:
                wanted |= events.INSTRUCTION
            _monitoring.set_local_events(self.number, code, wanted)
            self.codes[id(code)] = code

    def on_start(self, code: CodeType, offset: int) -> Any:
        return self._begin(MonitoringWatch.called, code, sys._getframe(1))

    def on_resume(self, code: CodeType, offset: int) -> Any:
        return self._begin(MonitoringWatch.went_on, code, sys._getframe(1))

    def on_line(self, code: CodeType, line: int) -> None:
        self._tell(MonitoringWatch.entered, sys._getframe(1), line)

    def on_instruction(self, code: CodeType, offset: int) -> Any:
        if offset not in stores_of(code).after:
            return _monitoring.DISABLE
        return self._tell(MonitoringWatch.stepped, sys._getframe(1), offset)

    def on_return(self, code: CodeType, offset: int, value: Any) -> None:
        self._tell(MonitoringWatch.returned, sys._getframe(1), value)

    def _begin(self, happened: Happened, code: CodeType, frame: FrameType) -> Any:
        if not user_files[code.co_filename] or code.co_name in PROTOCOL or machine_made(code):
            return _monitoring.DISABLE
        if get_ident() in self.watches:
            self._follow(code)
            self._tell(happened, frame, None)
        return None

    def _tell(self, happened: Happened, frame: FrameType, what: Any) -> None:
        for watch in self.watches.get(get_ident(), ()):
            try:
                happened(watch, frame, what)
            except BaseException:
                self.leave(watch)  # interrupted, it is over: failing again on the way out, it could never end
                raise


Happened: TypeAlias = Callable[[MonitoringWatch, FrameType, Any], None]

_tool = _Tool()


def tool_is_free() -> bool:
    """Whether this Python can be watched this way, and a tool number is left."""
    return _monitoring is not None and (_tool.number is not None or free_number() is not None)


def free_number() -> int | None:
    by_use = (4, 3, 5, 2, 1, 0)  # 3 and 4 belong to nobody; the others have a usual owner
    return next((number for number in by_use if _monitoring.get_tool(number) is None), None)
