"""The page that `make demo` ends with, clicked, and held to finite differences of the network it shows."""

from pathlib import Path
from typing import Any

import pytest
import torch

from wrt._cli.demo import closing


def test_a_click_in_the_demos_page_shows_the_slopes_of_its_network(opened: Any, tmp_path: Path) -> None:
    said = closing.closing(tmp_path)
    assert "open it in a browser" in said
    page = opened((tmp_path / closing.NAME).as_uri())
    page.show("scores", page.view["source"]).click("target", 0, 1)
    assert page.over == "source"

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = closing._network()
        closing._train(model)
    model = model.double()
    picture = closing._draw(0, torch)[None, None].double()
    step = 1e-6
    for place in [(0, 0, 12, 12), (0, 0, 5, 12), (0, 0, 0, 0), (0, 0, 18, 7), (0, 0, 23, 23)]:
        move = torch.zeros_like(picture)
        move[place] = step
        with torch.no_grad():
            slope = (model(picture + move)[0, 1] - model(picture - move)[0, 1]) / (2 * step)
        assert page.derivative_at("source", *place) == pytest.approx(slope.item(), rel=1e-5, abs=1e-7)
    page.page.close()
