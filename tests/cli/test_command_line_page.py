"""The page about the terminal: every `wrt ask` on it prints what stands below it."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests._pages import Fence, fences
from wrt._cli import app as command_line

PAGE = list(fences((Path(__file__).parents[2] / "docs" / "command_line.md").read_text()))
ASKED = [(shell, PAGE[k + 1]) for k, shell in enumerate(PAGE) if shell.text.startswith("wrt ask")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the scripts of the page."""
    for fence in PAGE:
        if fence.title:
            (tmp_path / fence.title).write_text(fence.text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_asks_something() -> None:
    assert len(ASKED) >= 3
    assert all(says.language == "text" for _, says in ASKED)


@pytest.mark.parametrize(("shell", "says"), ASKED, ids=[shell.text.strip() for shell, _ in ASKED])
def test_the_terminal_prints_what_the_page_says(shell: Fence, says: Fence, folder: Path) -> None:
    result = CliRunner().invoke(command_line.app, shlex.split(shell.text)[1:])
    assert _timeless(result.output) == _timeless(says.text)


def _timeless(text: str) -> str:
    """Without how long a step took, which is never the same."""
    return re.sub(r", [\d.]+ (µs|ms|s)$", "", text, flags=re.MULTILINE)
