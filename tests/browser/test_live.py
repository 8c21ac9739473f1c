"""The live page: several tabs, a server that goes away and comes back, work that is cancelled, a phone."""

import math
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.browser.glass import STORE, Glass
from tests.browser.runs import jacobian, picture, slow


@pytest.fixture(scope="module")
def run() -> Any:
    return picture()


@pytest.fixture(scope="module")
def live(run: Any, opened: Any) -> Iterator[Any]:
    """One server for the tests that do not end it."""
    with run[2].show(browser=False, wait=False) as live:
        live.answer("hello", {})  # the first question starts a thread: not within somebody's test
        yield live


def test_two_tabs_look_at_different_things(run: Any, live: Any, opened: Any) -> None:
    model, x, _ = run
    truth = jacobian(model, x)
    first, second = opened(live.url), opened(live.url)
    first.page.bring_to_front()
    first.click("target", 0, 0)
    second.page.bring_to_front()
    second.click("target", 0, 2)
    for page, row in ((first, 0), (second, 2)):
        np.testing.assert_allclose(page.values, truth[0, row].ravel(), rtol=1e-12, atol=1e-15)
        page.page.close()


def test_a_page_finds_a_server_that_was_started_again(run: Any, opened: Any) -> None:
    model, x, t = run
    live = t.show(browser=False, wait=False)
    page = opened(live.url).click("target", 0, 1)
    live.close()
    page.page.keyboard.press("t")
    page.page.keyboard.press("ArrowRight")
    page.until(f"{STORE}.lost.value")
    assert "does not answer" in page.text(".wrt-lost")
    live.start()
    page.until(f"!{STORE}.lost.value && !{STORE}.busy.value")
    assert page.view["at"] == [0, 2]
    np.testing.assert_allclose(page.values, jacobian(model, x)[0, 2].ravel(), rtol=1e-12, atol=1e-15)
    page.page.close()
    live.close()
    opened.complaints[:] = [one for one in opened.complaints if "ERR_CONNECTION" not in one and "ERR_EMPTY" not in one]


def test_the_token_leaves_the_address_and_a_cookie_takes_its_place(live: Any, opened: Any) -> None:
    page = opened(live.url).click("target", 0, 1)
    address = lambda: page.page.evaluate("[location.href, document.title, document.cookie]")
    assert live.token not in address()[0]
    assert "token=" not in address()[0]
    assert address()[1] == f"{live.microscope.title} · wrt"
    assert address()[2] == ""  # no script reads it
    assert live.token not in page.page.evaluate("JSON.stringify([history.state, {...sessionStorage}, {...localStorage}])")
    page.page.get_by_text("copy link").click()
    link = page.page.evaluate("navigator.clipboard.readText()")
    assert "token" not in link
    before = page.values
    page.page.reload()
    np.testing.assert_array_equal(Glass(page.page).values, before)
    page.page.close()


def test_a_link_without_the_cookie_shows_nothing(live: Any, chromium: Any, built: None) -> None:
    context = chromium.new_context()
    tab = context.new_page()
    tab.goto(live.url.split("#")[0])
    tab.wait_for_selector(".wrt-trouble")
    assert tab.title() == "wrt"
    assert live.microscope.title not in tab.content()
    context.close()


def test_a_cookie_of_this_page_goes_to_no_other_port(live: Any, opened: Any) -> None:
    page = opened(live.url)
    sent: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers.get("Cookie") or "")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        serving = threading.Thread(target=other.serve_forever)
        serving.start()
        for path in ("/", "/api/hello", "/0123456789abcdef/"):
            page.page.goto(f"http://127.0.0.1:{other.server_port}{path}")
        other.shutdown()
        serving.join()
    assert set(sent) == {""}
    page.page.close()
    opened.complaints[:] = []


def test_a_page_of_another_run_is_told_so(live: Any, opened: Any) -> None:
    page = opened(live.url.split("#")[0] + "#token=of-another-run", wait=False)
    page.until("document.querySelector('.wrt-trouble')")
    assert "open the link that the running program printed" in page.text(".wrt-trouble")
    page.page.close()
    opened.complaints[:] = [one for one in opened.complaints if "403" not in one and "401" not in one]


def test_long_work_says_how_far_it_is_and_can_be_cancelled(opened: Any) -> None:
    with slow().show(browser=False, wait=False) as live:
        page = opened(live.url).show("y", "x", [0])
        before = page.values
        page.page.get_by_text("dependence map").click()
        page.page.wait_for_selector(".wrt-progress")
        page.until("/\\d%/.test(document.querySelector('.wrt-progress')?.innerText)")  # how far it is
        page.page.locator(".wrt-progress button").click()
        page.until(f"!{STORE}.busy.value && !{STORE}.progress.value")
        assert page.page.locator(".wrt-matrix").count() == 0
        # the worker is free again: the next question is answered
        page.show("y", "x", [0])
        np.testing.assert_array_equal(page.values, before)
        page.page.close()


def test_a_click_while_something_is_computed_takes_its_place(opened: Any) -> None:
    with slow().show(browser=False, wait=False) as live:
        page = opened(live.url).show("y", "x", [3])
        page.page.get_by_text("dependence map").click()
        page.page.wait_for_selector(".wrt-progress")
        page.show("y", "x", [5])
        assert page.view["at"] == [5]
        assert page.page.locator(".wrt-matrix").count() == 0
        page.page.close()


def test_pointing_asks_nothing(live: Any, opened: Any) -> None:
    page = opened(live.url)
    asked: list[str] = []
    page.page.on("request", lambda request: asked.append(request.url))
    for column in range(8):
        page.hover("source", 0, 0, 3, column)
    assert asked == []
    page.page.close()


def test_a_phone_shows_everything_in_one_column(live: Any, opened: Any) -> None:
    page = opened(live.url)
    page.page.set_viewport_size({"width": 360, "height": 740})
    page.until("document.querySelector('.wrt-body').clientWidth <= 360")
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 360
    places = ('[data-role="target"]', '[data-role="source"]', ".wrt-graph")
    boxes = [page.page.locator(place).bounding_box() for place in places]
    assert all(one["x"] >= 0 and one["x"] + one["width"] <= 360 for one in boxes)
    assert boxes[0]["y"] < boxes[1]["y"] < boxes[2]["y"]
    page.click("target", 0, 1)
    assert page.view["at"] == [0, 1]
    page.page.close()


def test_fingers_tap_and_pinch(live: Any, chromium: Any, built: None) -> None:
    context = chromium.new_context(viewport={"width": 393, "height": 727}, has_touch=True, is_mobile=True)
    tab = context.new_page()
    tab.goto(live.url)
    page = Glass(tab)
    page.heat("target").tap(position=page.spot("target", (0, 0)))
    assert page.settled().view["at"] == [0, 0]
    box = page.heat("source").bounding_box()
    x, y = box["x"] + box["width"] / 2, min(box["y"] + 60, 640)
    fingers = context.new_cdp_session(tab)

    def move(kind: str, *places: tuple[float, float]) -> None:
        points = [{"x": left, "y": top} for left, top in places]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    move("touchStart", (x - 20, y), (x + 20, y))
    for k in range(1, 10):
        move("touchMove", (x - 20 - 8 * k, y), (x + 20 + 8 * k, y))
    move("touchEnd")
    page.until("document.querySelector('[data-role=source] .wrt-heat').classList.contains('wrt-hand')")  # zoomed in
    assert page.view["from"] is None  # and nothing was selected by it
    tab.close()
    context.close()


SCRIPT = """
import torch
x = torch.linspace(-1, 1, 6, dtype=torch.float64).requires_grad_()
h = torch.sin(x)
y = h.cumsum(0)
"""


def test_a_script_shown_from_the_terminal_can_be_clicked(opened: Any, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    # whoever runs the tests in the background hands on an ignored Ctrl-C
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{listening}; from wrt._cli.app import main; main()", "show", "script.py", "--no-browser"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as program, ExitStack() as end:
        end.callback(program.kill)  # whatever fails: nobody waits for a page that is still served
        assert program.stderr is not None
        address = next(line.strip() for line in program.stderr if line.startswith("http"))
        page = opened(address).show("y", "x").click("target", 4)
        truth = [math.cos(-1 + 0.4 * k) if k <= 4 else 0.0 for k in range(6)]
        np.testing.assert_allclose(page.values, truth, rtol=1e-12, atol=0)
        page.page.close()
        program.send_signal(signal.SIGINT)
        program.wait(timeout=20)
