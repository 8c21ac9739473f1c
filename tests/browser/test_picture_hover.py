"""The heat map of a Jacobian in a notebook, in a real browser: what the mouse finds under it, cell by cell."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from wrt import d

UNDER_THE_MOUSE = "([x, y]) => document.elementFromPoint(x, y).title"
HOVERED = "words => document.querySelector('td:hover')?.title === words"
COLOR = "cell => getComputedStyle(cell).backgroundColor"


@pytest.fixture(scope="module")
def shown(chromium: Any) -> Any:
    x = torch.tensor([1.0, -2.0, 0.0], requires_grad=True)
    J = d(torch.stack([x.square().sum(), x[1] ** 3])) / d(x)
    J.numpy()  # looking costs nothing: before it is computed a notebook shows a sentence
    page = chromium.new_page()
    page.set_default_timeout(5000)
    page.set_content(f"<body>{J._repr_html_()}</body>")
    yield page
    page.close()


def test_position_and_value_are_under_the_mouse(shown: Any) -> None:
    cells = shown.locator("td[title]")
    expected = ["[0, 0] = 2", "[0, 1] = -4", "[0, 2] = 0", "[1, 0] = 0", "[1, 1] = 12", "[1, 2] = 0"]
    assert cells.count() == len(expected)
    for k, words in enumerate(expected):
        box = cells.nth(k).bounding_box()
        assert min(box["width"], box["height"]) >= 11
        middle = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
        cells.nth(k).hover()
        assert shown.evaluate(UNDER_THE_MOUSE, middle) == words
        shown.wait_for_function(HOVERED, arg=words)


def test_colors_tell_signs_apart_and_zero_is_white(shown: Any) -> None:
    def color(k: int) -> list[int]:
        words = shown.locator("td[title]").nth(k).evaluate(COLOR)
        return [int(part) for part in words[4:-1].split(",")]

    above, below, zero, most = color(0), color(1), color(2), color(4)
    assert above[0] > above[2]  # red
    assert most[0] > most[2]
    assert below[2] > below[0]  # blue
    assert zero == [255, 255, 255]
    assert sum(most) < sum(above)  # the larger one is darker


def test_a_screen_reader_hears_what_it_is(shown: Any) -> None:
    words = shown.get_by_role("img").get_attribute("aria-label")
    assert "2 x 3" in words
