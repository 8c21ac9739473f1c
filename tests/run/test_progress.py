"""A bar for long work, where somebody sees it, gone when the work ends in whatever way."""

import pytest

from wrt._run import progress
from wrt._run.progress import Progress


@pytest.fixture
def seen(monkeypatch):
    shown = []

    class Bar:
        def advance(self, task, count):
            shown.append(count)

        def stop(self):
            shown.append("stopped")

    def show(self):
        self._bar, self._task = Bar(), 0
        shown.append("shown")

    monkeypatch.setattr(Progress, "_show", show)
    monkeypatch.setattr(progress, "watched", lambda: True)
    return shown


def test_quick_work_shows_nothing(seen):
    with Progress("rows", 10) as bar:
        for _ in range(10):
            bar.advance(1)
    assert seen == []


def test_long_work_shows_a_bar_and_takes_it_away(seen, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with Progress("rows", 3) as bar:
        for _ in range(3):
            bar.advance(1)
    assert seen == ["shown", 1, 1, "stopped"]


def test_ctrl_c_takes_the_bar_away(seen, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with pytest.raises(KeyboardInterrupt), Progress("rows", 3) as bar:
        bar.advance(1)
        raise KeyboardInterrupt
    assert seen == ["shown", "stopped"]


def test_nobody_watching_nothing_shown(seen, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "watched", lambda: False)
    with Progress("rows", 3) as bar:
        bar.advance(1)
    assert seen == []
