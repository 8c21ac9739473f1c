"""The page in one file, opened from disk with the network off."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wrt
from tests.browser.glass import STORE
from tests.browser.runs import cut, jacobian, picture


@pytest.fixture(scope="module")
def run() -> Any:
    return picture()


@pytest.fixture(scope="module")
def page(run: Any, opened: Any, tmp_path_factory: Any) -> Any:
    saved = tmp_path_factory.mktemp("page") / "run.html"
    run[2].save_html(saved, title="saved")
    opened.context.set_offline(True)
    return opened(saved.as_uri())


def test_rows_are_drawn_from_the_file(page: Any, run: Any) -> None:
    model, x, _ = run
    truth = jacobian(model, x)
    for row in (1, 2):
        page.show("head", "x").click("target", 0, row)
        np.testing.assert_allclose(page.values, truth[0, row].ravel(), rtol=1e-6, atol=1e-9)
        assert page.derivative_at("source", 0, 1, 5, 6) == pytest.approx(truth[0, row, 0, 1, 5, 6].item(), rel=1e-6)


def test_columns_and_regions_are_computed_by_the_page(page: Any, run: Any) -> None:
    model, x, _ = run
    truth = jacobian(model, x)
    page.show("head", "x", [0, 0])
    page.click("source", 0, 2, 3, 3)
    np.testing.assert_allclose(page.values, truth[0, :, 0, 2, 3, 3], rtol=1e-6, atol=1e-9)
    page.show("head", "x", [0, [0, 2]])
    np.testing.assert_allclose(page.values, truth[0, :2].sum(0).ravel(), rtol=1e-6, atol=1e-9)


def test_what_was_not_computed_says_how_to_get_it(page: Any) -> None:
    page.show("head", "conv2.bias", [0, 1])
    said = page.text(".wrt-trouble")
    assert "not in the file" in said
    assert 'd(t["head"])[0, 1] / d(t["conv2.bias"])' in said or 't["conv2.bias"].value' in said


def test_a_link_to_the_file_holds_the_view_and_no_token(page: Any, opened: Any) -> None:
    page.show("head", "x", [0, 2])
    link = page.page.evaluate(f"{STORE}.trail.link({STORE}.view.value)")
    assert "token" not in link
    second = opened(link)
    assert second.view["at"] == [0, 2]
    second.page.close()


def test_the_file_asks_for_nothing_and_names_no_folder(page: Any, run: Any) -> None:
    asked: list[str] = []
    page.page.on("request", lambda request: asked.append(request.url))
    page.page.reload()
    page.settled()
    assert [url.split("#")[0].rpartition("/")[2] for url in asked] == ["run.html"]
    text = Path(page.page.url.split("#")[0].removeprefix("file://")).read_text()
    assert str(Path(wrt.__file__).parents[2]) not in text
    assert "torch.relu(self.conv1(x))" not in text  # sources only where asked for


def test_a_cut_is_explained_in_the_file_too(opened: Any, tmp_path: Path) -> None:
    cut().save_html(tmp_path / "cut.html")
    page = opened((tmp_path / "cut.html").as_uri())
    page.page.wait_for_selector(".wrt-why")
    assert "detach cuts the path from x to loss" in page.text(".wrt-why")
    assert page.page.locator(".wrt-severed").count() == 1
    page.page.close()
