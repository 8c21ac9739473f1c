"""`wrt show`: a script becomes a page."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.microscope.conftest import STAND_IN
from wrt._cli import app as command_line
from wrt._microscope import assets

SCRIPT = """
import torch
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
h = x**2
loss = h.sum()
"""
TRACED = """
import torch, wrt
def f(x):
    y = 3 * x
    return y
t = wrt.trace(f, torch.ones(4), values=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(assets, "bundle", lambda: STAND_IN)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "traced.py").write_text(TRACED)
    (tmp_path / "plain.py").write_text("import wrt\nx = 1\n")
    return tmp_path


def show(*arguments: str) -> Result:
    return CliRunner().invoke(command_line.app, ["show", *arguments])


def carried(path: Path) -> list[tuple[str, str, object]]:
    data = json.loads(path.read_text().split('id="wrt-run">')[1].split("</script>")[0])
    return [(one["target"]["name"], one["source"]["name"], one["rows"]) for one in data["maps"]]


def test_a_script_is_recorded_and_written(folder: Path) -> None:
    told = show("train.py", "-o", "run.html")
    assert told.exit_code == 0, told.output
    assert told.output.startswith("run.html: 0.0 MB of 20 MB, 3 values, 1 row of loss by x")
    assert carried(folder / "run.html") == [("loss", "x", None), ("h", "x", None)]


def test_rows_can_be_chosen(folder: Path) -> None:
    assert show("train.py", "-o", "run.html", "--row", "h[1]", "--by", "x").exit_code == 0
    assert carried(folder / "run.html") == [("h", "x", [1])]


def test_a_script_that_records_itself_is_shown_by_its_recording(folder: Path) -> None:
    assert show("traced.py", "-o", "run.html").exit_code == 0
    assert carried(folder / "run.html") == [("y", "x", None)]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("plain.py", "-o", "run.html"), 1, "plain.py left no recording behind"),
        (("nothing.py", "-o", "run.html"), 1, "nothing.py cannot be read"),
        (("train.py", "-o", "run.html", "--row", "h / x"), 2, "a row is one value with an index"),
        (("train.py", "-o", "run.html", "--row", "nothing"), 1, "no tensor named 'nothing' was recorded"),
        (("train.py", "-o", "run.html", "--limit", "much"), 1, "limit='much' is no size"),
    ],
)
def test_what_cannot_be_shown_is_said_in_three_lines(arguments: tuple[str, ...], status: int, says: str, folder: Path) -> None:
    told = show(*arguments)
    assert told.exit_code == status
    assert says in told.output
    assert len(told.output.strip().splitlines()) == 3
    assert not (folder / "run.html").exists()


def test_the_live_page_is_opened_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    from wrt._microscope.server import Live

    opened: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", opened.append)
    began: list[object] = []
    monkeypatch.setattr(Live, "wait", lambda live: (began.append(live.microscope.hello({})["default"]), live.close()))
    told = show("train.py", "--at", "h[1] / x")
    assert told.exit_code == 0
    assert began == [{"target": "h", "source": "x", "index": [1]}]
    assert "http://127.0.0.1:" in told.output
    (address,) = opened
    assert address.startswith("file:")  # the token never stands on a command line
    assert "token" not in address


def test_no_browser_is_started_where_it_would_take_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from wrt._microscope.server import Live

    opened: list[str] = []
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(Live, "wait", lambda live: live.close())
    assert show("train.py").exit_code == 0
    assert not opened
