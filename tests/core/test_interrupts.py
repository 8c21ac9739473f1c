"""Ctrl-C waits while something is done that must not be left half done."""

from __future__ import annotations

import signal
import threading

import pytest

from wrt._core.interrupts import held_back


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_it_is_raised_at_the_end_and_once():
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        interrupt()
        interrupt()
        done.append("whole")
    assert done == ["whole"]


def test_the_handler_is_the_users_again():
    before = signal.getsignal(signal.SIGINT)
    with held_back():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_of_the_users_own_is_called_with_what_it_would_have_had():
    calls = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append((number, frame.f_code.co_name)))
    try:
        with held_back():
            interrupt()
            assert not calls
        assert calls == [(signal.SIGINT, "interrupt")]
    finally:
        signal.signal(signal.SIGINT, before)


def test_one_inside_another_waits_for_the_outer():
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        with held_back():
            interrupt()
        done.append("still going on")
    assert done == ["still going on"]


def test_where_interrupts_are_ignored_nothing_is_changed():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_back():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread_there_is_nothing_to_hold_back():
    done = []

    def work() -> None:
        with held_back():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.getsignal(signal.SIGINT)]
