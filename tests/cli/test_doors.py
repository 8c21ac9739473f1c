"""`wrt ask` and `wrt show` against hostile questions, hostile scripts and careless names of files."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.microscope.conftest import STAND_IN
from wrt._cli import app as command_line
from wrt._cli import query as queries
from wrt._microscope import assets
from wrt.errors import WrongQuery

SCRIPT = """
import torch
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = x**2
loss = y.sum()
escapes = {"\\x1b[31mred\\x1b]0;title\\x07": x, "right\\u202eleft": y, "plain": y}
class Lazy:
    @property
    def breaks(self):
        raise RuntimeError("\\x1b[2Jread")
lazy = Lazy()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(assets, "bundle", lambda: STAND_IN)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(SCRIPT)
    return tmp_path


def wrt_(*arguments: str) -> Result:
    return CliRunner().invoke(command_line.app, arguments)


def three_lines(told: Result) -> str:
    assert told.exception is None or isinstance(told.exception, SystemExit)
    assert len(told.output.strip().splitlines()) == 3, told.output
    return told.output


LONG = "9" * 5_000


@pytest.mark.parametrize("query", [f"y[{LONG}] / x", f"y / x[-{LONG}:]", f"y#{LONG} / x", f"y[{'9' * 4000}] / x"])
def test_an_index_of_thousands_of_digits_is_refused(query: str) -> None:
    told = wrt_("ask", "own.py", query)
    assert told.exit_code == 2
    assert len(three_lines(told)) < 1_000


@pytest.mark.parametrize("query", ["y[0] / x[2]" + " " * 20_000, " " * 20_000 + "y / x", "y / x" + "\t\n" * 20_000])
def test_blanks_cost_nothing(query: str) -> None:
    begun = time.perf_counter()
    queries.read(query)
    assert time.perf_counter() - begun < 1.0  # it was 15 s


@pytest.mark.parametrize("query", ["y" + " / x" * 2_000, "y" + "[0]" * 5_000 + " / x", "y / " + "x" * 50_000])
def test_a_question_has_a_sensible_length(query: str) -> None:
    begun = time.perf_counter()
    with pytest.raises(WrongQuery):
        queries.read(query)
    assert time.perf_counter() - begun < 1.0  # it was 15 s


@pytest.mark.parametrize(
    "query", ["\x1b[31my / x", "y / \x1b]0;title\x07", "y / x \u202e", "escapes.nothing / x", "y / lazy.breaks", "y \x9b31m / x"]
)
def test_what_is_printed_moves_no_terminal(query: str) -> None:
    told = wrt_("ask", "own.py", query)
    assert told.exit_code != 0
    three_lines(told)
    assert all(one.isprintable() or one == "\n" for one in told.output)


def test_an_answer_shows_hostile_names_as_text(folder: Path) -> None:
    (folder / "named.py").write_text(
        "import torch\nx = torch.ones(2, requires_grad=True)\n"
        "class Named(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.register_parameter('a\\x1b[31m', torch.nn.Parameter(torch.ones(2)))\n"
        "model = Named()\ny = (x * next(model.parameters())).sum()\n"
    )
    told = wrt_("ask", "named.py", "y / model")
    assert told.exit_code == 0
    assert "\x1b" not in told.output
    assert "a\\x1b[31m" in told.output


def test_a_script_that_dies_with_escapes_is_told_as_text(folder: Path) -> None:
    (folder / "dies.py").write_text("raise ValueError('\\x1b[2J\\x1b]52;c;Zm9v\\x07')\n")
    told = wrt_("ask", "dies.py", "y / x")
    assert told.exit_code == 1
    assert "\x1b" not in told.output


def test_a_safe_path_stays_safe(folder: Path) -> None:
    (folder / "planted.py").write_text("print('planted ran')\n")
    (folder / "imports.py").write_text("import torch\nx = torch.ones(1, requires_grad=True)\ny = x * 2\nimport planted\n")
    command = [sys.executable, "-c", "from wrt._cli.app import main; main()", "ask", "imports.py", "y / x"]
    around = os.environ | {"PYTHONSAFEPATH": "1"}
    safe = subprocess.run(command, env=around, capture_output=True, text=True)
    assert "planted ran" not in safe.stdout + safe.stderr
    assert "No module named 'planted'" in safe.stderr
    usual = subprocess.run(command, env=os.environ | {"PYTHONSAFEPATH": ""}, capture_output=True, text=True)
    assert "planted ran" in usual.stdout


# ---- files that are there already ----


def test_a_script_is_never_written_over_by_its_own_page(folder: Path) -> None:
    told = wrt_("show", "own.py", "-o", "own.py")
    assert told.exit_code == 1
    assert "wrt did not write" in three_lines(told)
    assert (folder / "own.py").read_text() == SCRIPT


def test_it_is_said_before_the_script_runs(folder: Path) -> None:
    (folder / "prints.py").write_text(f"print('it ran'){SCRIPT}")
    (folder / "notes.html").write_text("<p>mine</p>")
    told = wrt_("show", "prints.py", "-o", "notes.html")
    assert "it ran" not in told.output
    assert (folder / "notes.html").read_text() == "<p>mine</p>"


def a_file(place: Path) -> None:
    place.write_text("<!doctype html><p>mine</p>")


def a_folder(place: Path) -> None:
    place.mkdir()


def a_fifo(place: Path) -> None:
    os.mkfifo(place)


def a_link(place: Path) -> None:
    (place.parent / "elsewhere").write_text("mine")
    place.symlink_to(place.parent / "elsewhere")


@pytest.mark.parametrize("make", [a_file, a_folder, a_fifo, a_link])
def test_a_page_is_written_over_a_page_of_wrt_alone(folder: Path, make: Any) -> None:
    make(folder / "run.html")
    told = wrt_("show", "own.py", "-o", "run.html")
    assert told.exit_code == 1
    three_lines(told)
    if make is a_link:
        assert (folder / "elsewhere").read_text() == "mine"
    assert wrt_("show", "own.py", "-o", "mine.html").exit_code == 0
    assert wrt_("show", "own.py", "-o", "mine.html").exit_code == 0  # its own, again


def test_a_page_that_cannot_be_written_whole_leaves_the_one_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrt_("show", "own.py", "-o", "run.html").exit_code == 0
    before = (folder / "run.html").read_bytes()

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    wrt_("show", "own.py", "-o", "run.html")
    assert (folder / "run.html").read_bytes() == before
    assert sorted(one.name for one in folder.iterdir()) == ["own.py", "run.html"]


OPTIONS = [("flow", "own.py", "--plot", "mine.png"), ("steer", "model.py", "h[0]", "--save", "mine.npy")]


@pytest.mark.parametrize("option", OPTIONS)
def test_pictures_and_inputs_are_not_written_over_anything(folder: Path, option: tuple[str, ...]) -> None:
    (folder / "model.py").write_text("import torch\nmodel = torch.nn.Linear(2, 2)\nx = torch.ones(1, 2)\nloss = model(x).sum()\n")
    (folder / option[-1]).write_bytes(b"mine")
    told = wrt_(*option)
    assert told.exit_code == 1
    assert "is there already" in three_lines(told)
    assert (folder / option[-1]).read_bytes() == b"mine"
