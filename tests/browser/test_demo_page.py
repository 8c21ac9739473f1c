"""The page that `make demo` ends with, clicked, and held to finite differences of the network it shows."""

from pathlib import Path
from typing import Any

import pytest
import torch

from wrt._cli import demo


def test_a_click_in_the_demos_page_shows_the_slopes_of_its_network(opened: Any, tmp_path: Path) -> None:
    said = demo.write_page(tmp_path)
    assert "open it in a browser" in said
    page = opened((tmp_path / demo.PAGE).as_uri())
    page.show("scores", page.view["source"]).click("target", 0, 1)
    assert page.over == "source"

    model, picture = demo.network()
    step = 1e-6
    for place in [(0, 0, 12, 12), (0, 0, 5, 12), (0, 0, 0, 0), (0, 0, 18, 7), (0, 0, 23, 23)]:
        move = torch.zeros_like(picture)
        move[place] = step
        with torch.no_grad():
            slope = (model(picture + move)[0, 1] - model(picture - move)[0, 1]) / (2 * step)
        assert page.derivative_at("source", *place) == pytest.approx(slope.item(), rel=1e-5, abs=1e-7)
    page.page.close()
