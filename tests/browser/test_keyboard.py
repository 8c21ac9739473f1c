"""Everything without a pointer: order of focus, arrow keys, shortcuts, and what a screen reader is told."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.runs import jacobian, picture


@pytest.fixture(scope="module")
def run() -> Any:
    return picture()


@pytest.fixture(scope="module")
def glass(run: Any, opened: Any) -> Iterator[Any]:
    with run[2].show(browser=False, wait=False) as live:
        page = opened(live.url)
        yield page
        page.page.close()


@pytest.fixture
def page(glass: Any) -> Any:
    glass.page.evaluate("document.activeElement.blur()")
    return glass.show("conv2", "x", [0, 1, 2, 2])


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.page.keyboard.press(key)
    page.settled()


def label(page: Any, role: str) -> str:
    return page.heat(role).get_attribute("aria-label").replace("−", "-")


def test_arrow_keys_move_the_selected_element(page: Any, run: Any) -> None:
    model, x, _ = run
    press(page, "t", "ArrowRight", "ArrowRight", "ArrowDown")
    assert page.view["at"] == [0, 1, 3, 4]
    truth = jacobian(lambda z: model.conv2(model.conv1(z).relu())[0, 1, 3, 4], x)
    assert page.values.reshape(truth.shape) == pytest.approx(truth.numpy(), rel=1e-12, abs=1e-15)


def test_arrow_keys_stop_at_the_edge_and_pages_turn_planes(page: Any) -> None:
    press(page, "t", "End", "ArrowRight", "ArrowRight")
    assert page.view["at"] == [0, 1, 2, 4]
    press(page, "PageDown", "PageDown")
    assert page.view["at"] == [0, 3, 2, 4]


def test_shift_and_arrow_keys_grow_a_region(page: Any) -> None:
    press(page, "t", "Shift+ArrowRight", "Shift+ArrowDown")
    assert page.view["at"] == [0, 1, [2, 4], [2, 4]]


def test_a_screen_reader_hears_the_element_its_value_and_its_derivative(page: Any, run: Any) -> None:
    model, x, _ = run
    page.show("head", "x", [0, 1])
    truth = jacobian(model, x)[0, 2]
    press(page, "t", "ArrowRight")
    name, _, value = label(page, "target").partition(", value ")
    assert name == "target head, 1 × 3, selected 0, 2"
    assert float(value.split(". ")[0]) == pytest.approx(model(x)[0, 2].item(), rel=1e-12)
    said = page.text("[aria-live=polite]")
    assert 'd(t["head"])[0, 2] / d(t["x"])' in said
    assert f"{int((truth != 0).sum())} of {truth.numel()} entries are not zero" in said


def test_tab_leads_through_everything_in_order(page: Any) -> None:
    page.page.get_by_label("keys", exact=True).focus()
    seen = []
    for _ in range(40):
        page.page.keyboard.press("Tab")
        seen.append(page.page.evaluate("document.activeElement.closest('section')?.getAttribute('aria-label')"))
    order = list(dict.fromkeys(name for name in seen if name))
    assert order[:4] == ["computation", "question", "target", "source"]


def test_every_control_has_a_name(page: Any) -> None:
    nameless = """[...document.querySelectorAll("button, select, input, [tabindex='0']")]
        .filter((one) => !(one.getAttribute("aria-label") || one.innerText.trim() || one.closest("label")))
        .map((one) => one.outerHTML.slice(0, 80))"""
    assert page.page.evaluate(nameless) == []


def test_the_graph_is_walked_with_arrow_keys_and_chosen_with_enter(page: Any) -> None:
    press(page, "g")
    first = page.page.evaluate("document.activeElement.dataset.key")
    page.page.keyboard.press("ArrowDown")
    page.until(f"document.activeElement.dataset.key && document.activeElement.dataset.key !== '{first}'")
    said = page.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert "conv1" in said
    press(page, "Enter")
    assert page.view["source"] == "conv1"


def test_question_mark_lists_the_keys_and_escape_closes(page: Any) -> None:
    page.page.keyboard.press("?")
    assert "move the selected element" in page.text("dialog.wrt-help")
    page.page.keyboard.press("Escape")
    page.until("!document.querySelector('dialog')")


def test_back_forward_exchange_and_dark_have_keys(page: Any) -> None:
    press(page, "t", "ArrowRight")
    here = page.view
    press(page, "ArrowRight")
    page.page.keyboard.press("b")
    page.until("location.hash.includes('at=0,1,2,3')")
    assert page.settled().view == here
    before = page.page.locator(".wrt").get_attribute("data-theme")
    page.page.keyboard.press("d")
    assert page.page.locator(".wrt").get_attribute("data-theme") != before
    page.page.keyboard.press("d")


def test_numbers_stay_readable_when_zoomed_by_keys(page: Any) -> None:
    press(page, "t", "+", "+", "0")
    assert page.heat("target").evaluate("box => box.classList.contains('wrt-hand')") is False
