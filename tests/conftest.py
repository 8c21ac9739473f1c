"""Around every test: nothing global may have changed. For every test: `unchanged` and `watched`."""

import gc
import os
from collections.abc import Callable, Iterator

import pytest

from tests import _snapshot

# Before any framework is imported: no start-up chatter, no window, no grab of all GPU memory.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@pytest.fixture(autouse=True)
def nothing_global_changes() -> Iterator[None]:
    before = _snapshot.ambient()
    yield
    _snapshot.require_same(before, _snapshot.ambient())


@pytest.fixture(autouse=True, scope="module")
def leave_out_what_is_older() -> None:
    """What modules and earlier tests keep is no affair of the collector, nor of an `explain()` that looks for hooks."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def planned_from_the_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plans are made for every question, also for those that a direct sweep answers before planning could pay."""
    from wrt._plan import cache, chain, plans

    monkeypatch.setattr(plans, "QUICK_SECONDS", 0.0)
    monkeypatch.setattr(plans, "QUICK_SECONDS_DEVICE", 0.0)
    monkeypatch.setattr(chain, "SAMPLE_SECONDS", 0.0)
    cache.forget()
    yield
    cache.forget()


@pytest.fixture
def unchanged() -> Callable[..., object]:
    """`with unchanged(x, model):` around a call into wrt. Under hypothesis import it from `tests._snapshot`."""
    return _snapshot.unchanged


@pytest.fixture
def watched() -> Iterator[Callable[..., None]]:
    """`watched(x, model)`: these must be the same at the end of the test as they are now."""
    registered = []

    def register(*objects: object, **named: object) -> None:
        registered.append((objects, named, _snapshot.facts_of(*objects, **named)))

    yield register
    for objects, named, before in registered:
        _snapshot.require_same(before, _snapshot.facts_of(*objects, **named))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests measured or saw and told with `record_property("told", text)`, also from other processes."""
    reports = terminalreporter.getreports("passed")
    told = [str(text) for report in reports for key, text in report.user_properties if key == "told"]
    if told:
        terminalreporter.section("seen")
        terminalreporter.write_line("\n".join(told))
