"""The page in one file: what it carries is right, fits, and says nothing about the machine."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wrt
from tests.microscope.conftest import Net
from tests.microscope.hostile import NAMES
from tests.microscope.numbers import decode
from wrt import d
from wrt._microscope import assets
from wrt.errors import TooLarge, WrtError

pytestmark = pytest.mark.usefixtures("page")


class Reader(HTMLParser):
    """The page as a browser would take it apart."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append(("", {}, ""))

    def handle_data(self, data: str) -> None:
        tag, attrs, before = self.elements[-1]
        self.elements[-1] = (tag, attrs, before + data)


def read(path: Path) -> tuple[Any, dict[str, str], list[Any]]:
    reader = Reader()
    reader.feed(path.read_text())
    scripts = {attrs.get("type") or "": text for tag, attrs, text in reader.elements if tag == "script"}
    return json.loads(scripts["application/json"]), scripts, reader.elements


def dense(matrix: dict[str, Any]) -> np.ndarray:
    """A carried Jacobian, opened by hand."""
    if matrix["kind"] == "dense":
        return decode(matrix["dense"])
    if matrix["kind"] == "factors":
        return decode(matrix["factors"]["left"]) @ decode(matrix["factors"]["right"])
    starts, columns, values = (decode(matrix["sparse"][key]) for key in ("indptr", "indices", "values"))
    whole = np.zeros((len(starts) - 1, int(np.prod(matrix["source"]["shape"]))))
    for row in range(len(starts) - 1):
        whole[row, columns[starts[row] : starts[row + 1]]] = values[starts[row] : starts[row + 1]]
    return whole


def by_loop(y: torch.Tensor, x: torch.Tensor) -> np.ndarray:
    rows = [torch.autograd.grad(one, x, retain_graph=True)[0].reshape(-1) for one in y.reshape(-1)]
    return torch.stack(rows).numpy()


def test_every_matrix_of_the_default_choice_is_the_jacobian(
    run: wrt.Trace, net: Net, x: torch.Tensor, tmp_path: Path
) -> None:
    saved = run.save_html(tmp_path / "run.html")
    data, *_ = read(saved.path)
    x = x.clone().requires_grad_()
    conv1 = net.conv1(x)
    conv2 = net.conv2(torch.tanh(conv1))
    truth = {"fc": net.fc(torch.tanh(conv2).flatten(1)), "conv1": conv1, "conv2": conv2}
    assert [one["target"]["name"] for one in data["maps"]] == ["fc", "conv2", "conv1"]
    for one in data["maps"]:
        assert one["rows"] is None
        np.testing.assert_allclose(dense(one), by_loop(truth[one["target"]["name"]], x), rtol=0, atol=1e-12)
    assert [one["kind"] for one in data["maps"]] == ["dense", "sparse", "sparse"]
    assert saved.rows == 5 + 36 + 192
    assert saved.bytes == saved.path.stat().st_size < 20_000_000


def test_chosen_rows_are_carried_and_no_others(run: wrt.Trace, net: Net, x: torch.Tensor, tmp_path: Path) -> None:
    saved = run.save_html(tmp_path / "run.html", rows=[run["conv2"][0, 1, :2, 0], "fc"], by=["conv1"])
    data, *_ = read(saved.path)
    first, second = data["maps"]
    assert first["rows"] == [9, 12]
    assert (first["source"]["name"], second["target"]["name"]) == ("conv1", "fc")
    want = (d(run["conv2"])[0, 1, :2, 0] / d(run["conv1"])).numpy().reshape(2, -1)
    np.testing.assert_allclose(dense(first), want, atol=1e-14)
    assert "2 of 36 rows of conv2 by conv1" in str(saved)


def test_a_narrow_place_gives_two_factors(tmp_path: Path) -> None:
    torch_model = torch.nn.Sequential(torch.nn.Linear(40, 3), torch.nn.Tanh(), torch.nn.Linear(3, 40)).double()
    x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    t = wrt.trace(torch_model, x, values=True)
    data, *_ = read(t.save_html(tmp_path / "run.html", rows=["2"]).path)
    (one,) = data["maps"]
    assert one["kind"] == "factors"
    assert [one["factors"][side]["shape"] for side in ("left", "right")] == [[40, 3], [3, 40]]
    x = x.clone().requires_grad_()
    np.testing.assert_allclose(dense(one), by_loop(torch_model(x), x), atol=1e-14)


def test_rows_are_spread_where_not_all_of_them_fit(tmp_path: Path) -> None:
    t = wrt.trace(lambda x: torch.softmax(x, 0), torch.linspace(0, 1, 3000, dtype=torch.float64), values=True)
    saved = t.save_html(tmp_path / "run.html", limit="400 KB")
    data, *_ = read(saved.path)
    (one,) = data["maps"]
    assert 1 < len(one["rows"]) < 3000
    assert saved.bytes <= 400_000
    s = torch.softmax(torch.linspace(0, 1, 3000, dtype=torch.float64), 0).numpy()
    want = np.diag(s)[one["rows"]] - np.outer(s[one["rows"]], s)
    np.testing.assert_allclose(dense(one), want, atol=1e-12)


def test_rows_that_were_asked_for_and_do_not_fit_are_refused(run: wrt.Trace, tmp_path: Path) -> None:
    with pytest.raises(TooLarge) as caught:
        run.save_html(tmp_path / "run.html", rows=["fc"], limit="21 KB")
    what, stands, write = str(caught.value).splitlines()
    assert what.startswith("fc by")
    assert stands.strip() == "its limit is 0.021 MB"
    assert "limit=" in write
    assert not (tmp_path / "run.html").exists()


def test_no_path_of_this_machine_and_no_source_unless_asked(run: wrt.Trace, tmp_path: Path) -> None:
    plain = run.save_html(tmp_path / "plain.html").path.read_text()
    here = str(Path(__file__).parent)
    assert here not in plain
    assert "/home" not in plain
    assert "torch.tanh(self.conv1(x))" not in plain
    assert "conftest.py" in plain
    worded = run.save_html(tmp_path / "worded.html", sources=True).path.read_text()
    assert "torch.tanh(self.conv1(x))" in worded
    assert here not in worded


def test_only_the_inlined_script_may_run(run: wrt.Trace, tmp_path: Path) -> None:
    _, scripts, elements = read(run.save_html(tmp_path / "run.html").path)
    (policy,) = [attrs["content"] for tag, attrs, _ in elements if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    hashed = base64.b64encode(hashlib.sha256(scripts["module"].encode()).digest()).decode()
    assert f"script-src 'sha256-{hashed}';" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "connect-src" not in policy
    assert len([tag for tag, *_ in elements if tag == "script"]) == 2
    assert "<\\/script>" in scripts["module"]
    assert not [tag for tag, attrs, _ in elements if "src" in attrs or attrs.get("href", "data:,") != "data:,"]


def test_hostile_names_stay_text_in_the_file(tmp_path: Path) -> None:
    with wrt.record(values=True) as t:
        x = torch.ones(2, requires_grad=True)
        for name in NAMES:
            y = wrt.tap(name, x * 2)
    saved = t.save_html(tmp_path / "run.html", title=NAMES[1], tokens=NAMES)
    data, scripts, elements = read(saved.path)
    known = ["html", "head", "meta", "link", "title", "style", "body", "main", "noscript", "script"]
    assert {tag for tag, *_ in elements if tag} <= set(known)
    assert len([tag for tag, *_ in elements if tag == "script"]) == 2
    named = {name for node in data["graph"]["nodes"] for name in node["names"]}
    assert {name for name in NAMES if "#" not in name} <= named


def test_a_cut_is_carried_as_its_reason(tmp_path: Path) -> None:
    with wrt.record(values=True) as t:
        x = torch.ones(3, requires_grad=True)
        h = (x * 2).detach()
        y = (h * 3).sum()
    data, *_ = read(t.save_html(tmp_path / "run.html", rows=["y"], by=["x"]).path)
    (one,) = data["whys"]
    assert one["reply"]["findings"][0]["cause"] == "detach"
    assert one["reply"]["findings"][0]["source_lines"] is None
    assert "(x * 2)" not in json.dumps(data)


def test_a_bad_limit_or_row_is_refused_in_words(run: wrt.Trace, tmp_path: Path) -> None:
    for bad in ({"limit": "many"}, {"rows": [3]}, {"rows": ["nothing"]}):
        with pytest.raises(WrtError) as caught:
            run.save_html(tmp_path / "run.html", **bad)
        assert len(str(caught.value).splitlines()) == 3


def test_a_checkout_without_the_page_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(assets, "files", lambda package: tmp_path)
    assets.bundle.cache_clear()
    with pytest.raises(assets.NoPage) as caught:
        assets.bundle()
    assets.bundle.cache_clear()
    assert str(caught.value) == (
        "the page of the microscope is not there\n"
        "  a wheel of wrt carries it; a checkout has to build it once\n"
        "  run `make page` in the checkout, then ask again"
    )


def test_numbers_that_were_not_kept_are_no_obstacle(net: Net, x: torch.Tensor, tmp_path: Path) -> None:
    data, *_ = read(wrt.trace(net, x).save_html(tmp_path / "run.html").path)
    assert data["tensors"]["conv1"]["data"] is None
    assert re.search("values=True", data["tensors"]["conv1"]["note"])
    assert len(data["maps"]) == 3


def test_the_page_opens_at_the_first_row_that_was_chosen(run: wrt.Trace, tmp_path: Path) -> None:
    data, *_ = read(run.save_html(tmp_path / "run.html", rows=[run["conv2"][0, 1, 2, 0], "fc"], by=["conv1"]).path)
    assert data["hello"]["default"] == {"target": "conv2", "source": "conv1", "index": [0, 1, 2, 0]}
    assert (data["hello"]["targets"], data["hello"]["sources"]) == (["conv2", "fc"], ["conv1"])
