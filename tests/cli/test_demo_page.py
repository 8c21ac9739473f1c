"""The page at the end of the demo: its numbers are slopes of the network that it shows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.microscope.conftest import STAND_IN
from tests.microscope.numbers import decode
from wrt._cli import demo
from wrt._microscope import assets


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(assets, "bundle", lambda: STAND_IN)
    return demo.write_page(tmp_path)


def carried(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text().split('id="wrt-run">')[1].split("</script>")[0]))


def test_a_row_of_the_page_agrees_with_finite_differences(told: str, tmp_path: Path) -> None:
    data = carried(tmp_path / demo.PAGE)
    scores = next(one for one in data["maps"] if one["target"]["name"] == "scores")
    rows = decode(scores["dense"]).reshape(3, 24, 24)
    model, picture = demo.network()
    step = 1e-5
    for i, j in [(12, 12), (5, 12), (0, 0), (18, 7)]:
        moved = picture.clone()
        moved[0, 0, i, j] += step
        back = picture.clone()
        back[0, 0, i, j] -= step
        with torch.no_grad():
            slopes = ((model(moved) - model(back)) / (2 * step))[0].numpy()
        np.testing.assert_allclose(rows[:, i, j], slopes, atol=1e-7)


def test_the_network_knows_its_own_picture(told: str, tmp_path: Path) -> None:
    data = carried(tmp_path / demo.PAGE)
    assert data["hello"]["default"]["target"] == "scores"
    assert data["hello"]["default"]["index"] == [0, 0]  # a ring
    picture = data["tensors"][data["hello"]["default"]["source"]]
    assert picture["view"] == "image"
    assert 0.9 < picture["max"] <= 1


def test_the_demo_says_where_the_page_is(told: str, tmp_path: Path) -> None:
    assert told.startswith(demo.PAGE)
    assert str(tmp_path) not in told
    assert str(tmp_path) not in (tmp_path / demo.PAGE).read_text()


def test_without_the_page_the_demo_says_so_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> assets.Bundle:
        raise assets.NoPage("the page is not there", "it was not built", "make page")

    monkeypatch.setattr(assets, "bundle", missing)
    assert demo.write_page(tmp_path) == "no page was written: the page is not there\n  it was not built\n  make page"
