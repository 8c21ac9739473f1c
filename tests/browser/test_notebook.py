"""The page in a notebook: the widget's own module and messages, with a front end of ten lines around them."""

import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.browser.glass import STORE, Glass
from tests.browser.runs import jacobian, picture

pytest.importorskip("anywidget", reason="the page in a notebook needs anywidget")

# What a notebook's front end does: load the module, give it a model with send and on, put it into a cell.
CELL = """async (source) => {
  const module = await import(URL.createObjectURL(new Blob([source], {type: "text/javascript"})));
  const heard = [];
  const model = {
    on: (kind, act) => heard.push(act),
    off: () => {},
    send: async (message) => { for (const reply of await window.kernel(message)) heard.forEach((act) => act(reply)); },
    get: () => undefined, set: () => {}, save_changes: () => {},
  };
  const shown = () => {
    const cell = document.createElement("div");
    document.body.append(cell);
    return module.default.render({model, el: cell});
  };
  window.leave = shown();
  window.second = () => (window.leave_second = shown());
}"""


class Kernel:
    """The Python end: the real widget, whose messages are caught where they would go to the notebook."""

    def __init__(self, widget: Any) -> None:
        self.widget = widget
        self.replies: queue.Queue[dict[str, Any]] = queue.Queue()
        widget.send = lambda content, buffers=None: self.replies.put(content)

    def hear(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        self.widget._handle_custom_msg(message, [])
        if message["kind"] == "cancel":
            return []
        replies = []
        while not replies or replies[-1]["kind"] != "reply":
            replies.append(self.replies.get(timeout=20))
        return replies


@pytest.fixture(scope="module")
def run() -> Any:
    return picture()


@pytest.fixture(scope="module")
def page(run: Any, opened: Any) -> Iterator[Any]:
    import wrt._microscope.open as made

    kernels: list[Kernel] = []
    talk = made.Talk
    # The widget hands `send` to the talk when it is made: the catch has to be there before.
    made.Talk = lambda microscope, send: talk(microscope, lambda content: kernels[0].replies.put(content))  # type: ignore[assignment]
    try:
        widget = run[2].widget(title="in a cell")
    finally:
        made.Talk = talk
    kernels.append(Kernel(widget))
    page = opened("about:blank", wait=False)
    page.page.expose_function("kernel", kernels[0].hear)
    page.page.add_style_tag(content=widget._css)
    page.page.evaluate(CELL, widget._esm)
    page.settled()
    yield page
    page.page.close()
    widget.close()


def test_a_click_in_a_cell_shows_the_row(page: Glass, run: Any) -> None:
    model, x, _ = run
    page.click("target", 0, 1)
    np.testing.assert_allclose(page.values, jacobian(model, x)[0, 1].ravel(), rtol=1e-12, atol=1e-15)
    assert page.text("h1") == "in a cell"


def test_a_widget_shown_in_two_cells_answers_each(page: Glass, run: Any) -> None:
    model, x, _ = run
    page.page.evaluate("void window.second()")
    stores = "[...document.querySelectorAll('.wrt')].map((one) => one.parentElement.microscope)"
    page.until(f"{stores}.length === 2 && {stores}.every((store) => store.answer.value && !store.busy.value)")
    view = {"target": "head", "source": "x", "from": None, "asks": None}
    page.page.evaluate(f"view => {stores}.forEach((store, k) => void store.show({{...view, at: [0, k + 1]}}))", view)
    page.until(f"{stores}.every((store) => !store.busy.value && !store.stale.value)")
    for k, values in enumerate(page.page.evaluate(f"{stores}.map((store) => [...store.answer.value.values])")):
        np.testing.assert_allclose(values, jacobian(model, x)[0, k + 1].ravel(), rtol=1e-12, atol=1e-15)
    page.page.evaluate("window.leave_second()")


def test_a_cell_has_a_way_back_of_its_own_and_no_link(page: Glass) -> None:
    page.click("target", 0, 0).click("target", 0, 2)
    page.page.get_by_label("back", exact=True).click()
    assert page.settled().view["at"] == [0, 0]
    assert page.page.get_by_text("copy link").count() == 0


def test_keys_outside_of_the_cell_belong_to_the_notebook(page: Glass) -> None:
    before = page.page.locator(".wrt").get_attribute("data-theme")
    page.page.evaluate("document.activeElement.blur()")
    page.page.keyboard.press("d")
    assert page.page.locator(".wrt").get_attribute("data-theme") == before


def test_the_focus_stays_in_the_cell_when_what_had_it_is_replaced(page: Glass) -> None:
    page.show("head", "x", [0, 1]).click("target", 0, 0)
    page.page.keyboard.press("x")  # in Jupyter, outside of the page, this cuts the cell
    page.until(f"{STORE}.view.value.target === 'x' && !{STORE}.busy.value")
    assert page.page.evaluate("Boolean(document.activeElement.closest('.wrt[data-lm-suppress-shortcuts]'))")


def test_a_cell_can_be_taken_away(page: Glass) -> None:
    page.page.evaluate("window.leave()")
    assert page.page.locator(".wrt").count() == 0
