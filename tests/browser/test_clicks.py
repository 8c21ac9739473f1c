"""Clicking, dragging, going back: what is drawn is `J.value`, to the last digit that is shown."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import wrt
from tests.browser.runs import jacobian, picture, recurrence
from wrt import d

X = "x"


@pytest.fixture(scope="module")
def run() -> Any:
    return picture()


@pytest.fixture(scope="module")
def glass(run: Any, opened: Any) -> Iterator[Any]:
    with run[2].show(browser=False, wait=False, title="a network") as live:
        page = opened(live.url)
        yield page
        page.page.close()


@pytest.fixture
def page(glass: Any) -> Any:
    glass.show("head", X)
    glass.page.get_by_label("channel of the source").fill("-1")  # all of them
    return glass


def close(shown: Any, truth: Any) -> None:
    np.testing.assert_allclose(np.ravel(shown), np.ravel(truth), rtol=1e-12, atol=1e-15)


def test_a_click_in_the_target_shows_its_row_over_the_source(page: Any, run: Any) -> None:
    model, x, t = run
    page.click("target", 0, 1)
    truth = jacobian(model, x)[0, 1]
    assert page.over == "source"
    close(page.values, truth)
    close(page.values, (d(t.output)[0, 1] / d(t[X])).value)
    for index in ((0, 0, 3, 4), (0, 2, 11, 9), (0, 1, 0, 0)):
        assert page.derivative_at("source", *index) == pytest.approx(truth[index].item(), rel=1e-12)


def test_the_colors_are_blue_below_zero_and_red_above(page: Any, run: Any) -> None:
    model, x, _ = run
    page.click("target", 0, 0)
    truth = jacobian(model, x)[0, 0].numpy()
    low, high = (np.unravel_index(place, truth.shape) for place in (truth.argmin(), truth.argmax()))
    red, _, blue = page.pixel("source", *map(int, low))
    assert truth.min() < 0 < truth.max()
    assert blue > red
    red, _, blue = page.pixel("source", *map(int, high))
    assert red > blue


def test_a_click_in_the_source_shows_its_column_over_the_target(page: Any, run: Any) -> None:
    model, x, _ = run
    page.choose("target", "conv2")
    page.page.get_by_label("channel of the source").fill("1")
    page.click("source", 0, 1, 4, 5)
    assert page.over == "target"
    truth = (d(run[2]["conv2"]) / d(run[2][X])[0, 1, 4, 5]).value
    close(page.values, truth)
    reference = jacobian(lambda z: model.conv2(model.conv1(z).relu()), x)[..., 0, 1, 4, 5]
    close(page.values, reference)
    assert page.derivative_at("target", 0, 2, 2, 2) == pytest.approx(reference[0, 2, 2, 2].item(), rel=1e-12)


def test_a_click_in_a_colored_picture_takes_all_channels_of_the_pixel(page: Any, run: Any) -> None:
    model, x, _ = run
    page.choose("target", "conv2").click("source", 0, 0, 4, 5)
    assert page.view["from"] == [0, None, 4, 5]
    close(page.values, jacobian(lambda z: model.conv2(model.conv1(z).relu()), x)[..., 0, :, 4, 5].sum(-1))


def test_a_drag_shows_the_sum_over_the_region(page: Any, run: Any) -> None:
    model, x, _ = run
    page.choose("target", "conv2").click("target", 0, 1, 1, 1).drag("target", (0, 1, 1, 1), (0, 1, 3, 2))
    assert page.view["at"] == [0, 1, [1, 4], [1, 3]]
    truth = jacobian(lambda z: model.conv2(model.conv1(z).relu())[0, 1, 1:4, 1:3].sum(), x)
    close(page.values, truth)
    block = jacobian(lambda z: model.conv2(model.conv1(z).relu())[0, 1, 1:4, 1:3], x).reshape(6, -1)
    close(page.block, block)  # small enough to be shown entry by entry, too
    assert page.page.locator(".wrt-matrix").count() == 1


def test_a_shift_click_keeps_the_other_side_and_gives_one_number(page: Any, run: Any) -> None:
    model, x, _ = run
    page.click("target", 0, 2).click("source", 0, 0, 5, 5, shift=True)
    assert page.derivative_at("source", 0, 0, 5, 5) == pytest.approx(jacobian(model, x)[0, 2, 0, 0, 5, 5].item(), rel=1e-12)


def test_back_and_forward_lead_through_what_was_seen(page: Any) -> None:
    page.click("target", 0, 0).click("target", 0, 1)
    page.page.get_by_label("back", exact=True).click()
    page.until("location.hash.includes('at=0,0')")
    page.settled()
    assert page.view["at"] == [0, 0]
    page.page.get_by_label("forward", exact=True).click()
    page.until("location.hash.includes('at=0,1')")
    assert page.settled().view["at"] == [0, 1]


def test_a_copied_link_opens_the_same_view(page: Any, opened: Any) -> None:
    page.choose("target", "conv2").click("target", 0, 3, 2, 4)
    page.page.get_by_text("copy link").click()
    link = page.page.evaluate("navigator.clipboard.readText()")
    second = opened(link)
    assert second.view == page.view
    close(second.values, page.values)
    second.page.close()


def test_copied_python_answers_what_is_shown(page: Any, run: Any) -> None:
    page.choose("target", "conv2").click("target", 0, 3, 2, 4)
    page.page.get_by_text("copy as Python").click()
    python = page.page.evaluate("navigator.clipboard.readText()")
    assert python == f'd(t["conv2"])[0, 3, 2, 4] / d(t["{X}"])' == page.python
    close(page.values, eval(python, {"d": d, "t": run[2]}).value)


def test_the_plan_and_the_certificate_stand_below(page: Any) -> None:
    page.click("target", 0, 1)
    said = page.text(".wrt-evidence")
    assert "CERTIFICATE" in said.upper()
    assert "1 pass" in page.text(".wrt-facts")
    assert "direct" in said


def test_zooming_and_moving_keep_the_numbers_under_the_pointer(page: Any, run: Any) -> None:
    model, x, _ = run
    page.click("target", 0, 1)
    page.page.locator('[data-role="source"]').get_by_label("zoom in").click()
    heat = page.heat("source")
    heat.evaluate("box => box.dispatchEvent(new WheelEvent('wheel', {deltaX: 30, deltaY: 20, bubbles: true, cancelable: true}))")
    truth = jacobian(model, x)[0, 1]
    spot = page.spot("source", (0, 1, 6, 5))
    heat.hover(position=spot)
    where, shown = page.readout("source").split("]")[0].strip("[ "), float(page.readout("source").split("derivative")[1])
    assert shown == pytest.approx(truth[tuple(map(int, where.split(",")))].item(), rel=1e-12)


def test_the_slider_shows_one_channel(page: Any) -> None:
    page.click("target", 0, 1)
    page.page.get_by_label("channel of the source").fill("2")
    page.heat("source").hover()
    assert page.readout("source").startswith("[0, 2,")
    page.show("conv2", X, [0, 1, 2, 2])
    page.page.get_by_label("channel of the target").fill("3")  # away from what is selected
    page.heat("target").hover()
    assert page.readout("target").startswith("[0, 3,")
    page.page.get_by_label("channel of the target").fill("-1")


def test_all_against_all_is_the_triangle_of_a_recurrence(opened: Any) -> None:
    t = recurrence()
    with t.show(browser=False, wait=False) as live:
        page = opened(live.url).choose("target", "h").choose("source", "h")
        page.page.get_by_text("all × all").click()
        page.page.wait_for_selector(".wrt-matrix")
        block = page.settled().block
    h = t["h"].value.detach().numpy()
    slopes = 0.5 * (1 - h**2)
    truth = [[np.prod(slopes[j + 1 : i + 1]) if j <= i else 0.0 for j in range(8)] for i in range(8)]
    np.testing.assert_allclose(block, truth, rtol=1e-12)


def test_a_missing_gradient_is_explained_with_its_line(opened: Any) -> None:
    from tests.browser.runs import cut

    with cut().show(browser=False, wait=False) as live:
        page = opened(live.url).choose("target", "loss").choose("source", "x")
        page.page.wait_for_selector(".wrt-why .wrt-mark")
        why = page.text(".wrt-why")
        assert "detach cuts the path from x to loss" in why
        assert "h = features.detach()" in page.text(".wrt-why .wrt-mark")
        line = page.text(".wrt-why .wrt-mark span")
        assert f"cut · line {line}" in page.text(".wrt-box.wrt-cut")
        assert page.page.locator(".wrt-severed").count() == 1


def test_what_is_not_finite_is_said_and_drawn_in_a_color_of_its_own(opened: Any) -> None:
    with wrt.record(values=True) as t:
        x = torch.tensor([[0.0, 1.0, 4.0], [9.0, -1.0, 16.0]], dtype=torch.float64, requires_grad=True)
        y = x.sqrt()
        loss = y.sum()
    with t.show(browser=False, wait=False) as live:
        page = opened(live.url).show("loss", "x", [])
        assert page.hover("source", 0, 0).endswith("∞")
        assert page.hover("source", 1, 1).endswith("NaN")
        assert page.derivative_at("source", 0, 2) == 0.25
        red, green, blue = page.pixel("source", 1, 1)
        assert min(red, green) > 150 > blue
        assert "2 not finite" in page.text(".wrt-facts")
        page.page.close()


def test_nothing_of_the_run_changed(run: Any, unchanged: Any, opened: Any) -> None:
    model, x, t = run
    with t.show(browser=False, wait=False) as live:
        page = opened(live.url)
        with unchanged(model, x):
            page.click("target", 0, 1)
        page.page.close()
    assert isinstance(t, wrt.Trace)
