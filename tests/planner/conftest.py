"""Plans are made for every question here, also for those that a direct sweep answers before planning could pay."""

import pytest

from wrt._planner import warm
from wrt._run import planned


@pytest.fixture(autouse=True)
def planned_from_the_start(monkeypatch):
    monkeypatch.setattr(planned, "QUICK", 0.0)
    warm.forget()
    yield
    warm.forget()
