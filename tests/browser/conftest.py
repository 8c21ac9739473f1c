"""A real browser, the system's own. Nothing is downloaded: without one the tests say so and are skipped (CI=true: they fail)."""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests import _snapshot
from tests.browser.glass import Glass

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["*"]  # the runs that are looked at are torch's


def without(what: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}; in CI the browser tests have to run")
    pytest.skip(what)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        without("no Chromium here: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        without("no playwright here: pip install playwright")
    with sync_playwright() as driver:
        # No sandbox within a sandbox: as root, and in containers, Chromium would refuse to start.
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture(scope="module", autouse=True)
def nothing_global_changes() -> Iterator[None]:
    """As around every other test, but around a module: its tests share a server and a page, which are slow to start."""
    before = _snapshot.ambient()
    yield
    _snapshot.require_same(before, _snapshot.ambient())


@pytest.fixture(scope="module")
def built() -> None:
    from wrt._microscope import assets

    try:
        assets.bundle()
    except FileNotFoundError:
        without("the page is not built: make page")


@pytest.fixture(scope="module")
def opened(chromium: Any, built: None) -> Iterator[Any]:
    """`opened(url)` gives a page; at the end of the module no page may have complained."""
    context = chromium.new_context(viewport={"width": 1280, "height": 860}, permissions=["clipboard-read", "clipboard-write"])
    complaints: list[str] = []

    def open_page(url: str, **options: Any) -> Glass:
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.goto(url)
        return Glass(page, **options)

    open_page.context = context
    open_page.complaints = complaints
    yield open_page
    context.close()
    assert complaints == []
