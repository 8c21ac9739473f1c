"""A watch that is off for a stretch: nothing of the library's own is an event, and nothing of the user's is missed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from wrt._core.observer import Observer
from wrt._core.watch_settrace import SettraceWatch, hushed


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
