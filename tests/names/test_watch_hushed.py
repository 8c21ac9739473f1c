"""A watch that is off for a stretch: nothing of the library's own is an event, and nothing of the user's is missed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from wrt._core.where import user_files
from wrt._names import settrace
from wrt._names.observer import Observer
from wrt._names.settrace import SettraceWatch, hushed


@pytest.fixture
def untraced():
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def watching(seen):
    return SettraceWatch(Observer(lambda value: isinstance(value, float), lambda binding: seen.append(binding.name), None))


def noted(calls):
    """What a library does for one operation."""
    watch = hushed()
    try:
        calls.append(sys.gettrace())
        if len(calls) == 2:
            raise ValueError("refused")
    finally:
        if watch is not None:
            watch.go_on()
    return 1.5


def test_names_are_seen_around_it_also_where_it_fails(untraced):
    seen, calls = [], []
    watch = watching(seen)
    watch.start(sys._getframe())
    first = noted(calls)
    try:
        second = noted(calls)
    except ValueError:
        second = 2.5
    third = first + second
    watch.stop()
    assert calls == [None, None]
    assert seen[-3:] == ["first", "second", "third"], third
    assert sys.gettrace() is None


def test_whoever_looks_on_misses_nothing(untraced):
    events, calls = SimpleNamespace(names=[]), []

    def tracer(frame, event, arg):
        events.names.append(frame.f_code.co_name)

    sys.settrace(tracer)
    watch = watching([])
    watch.start(sys._getframe())
    noted(calls)
    watch.stop()
    assert calls == [watch]
    assert "noted" in events.names
    assert "hushed" in events.names


def test_without_a_watch_nothing_happens(untraced):
    assert hushed() is None


def read(calls, *, fails=False):
    """A library that reads a function of its own, and then notes an operation."""
    calls.append(sys.gettrace())
    if fails:
        raise ValueError("refused")
    return noted([])


@pytest.mark.parametrize("fails", [False, True])
def test_a_closed_function_is_not_watched_until_the_next_operation_is_noted(untraced, monkeypatch, fails):
    monkeypatch.setitem(settrace.CLOSED, read.__code__, lambda frame: "calls" in frame.f_locals)
    monkeypatch.setitem(user_files, __file__, False)  # here a library
    seen, calls = [], []
    watch = watching(seen)
    watch.start(None)
    try:
        read(calls, fails=fails)
    except ValueError:
        assert sys.gettrace() is None
        noted([])
    assert sys.gettrace() is watch
    watch.stop()
    assert calls[0] is None
    assert hushed() is None
