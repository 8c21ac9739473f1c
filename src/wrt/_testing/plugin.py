"""The pytest plugin: options for how hard the assertions look. It imports no framework."""

from __future__ import annotations

from typing import Any


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("wrt", "dependence tests (wrt.testing)")
    group.addoption("--wrt-points", type=int, default=None, help="inputs at which a model is probed (3)")
    group.addoption("--wrt-seed", type=int, default=None, help="seed of the random probes (0)")


def pytest_configure(config: Any) -> None:
    points, seed = config.getoption("--wrt-points"), config.getoption("--wrt-seed")
    if points is None and seed is None:
        return
    from wrt._testing.verdict import settings

    settings.points = settings.points if points is None else max(1, points)
    settings.seed = settings.seed if seed is None else seed
