"""The command line finds its commands by file name and imports only the one that is called."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import wrt
from wrt._cli import app as command_line


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command_line.app, arguments)
    return result.exit_code, result.output


def test_wrt_version_says_the_version() -> None:
    code, output = call("version")
    assert (code, output.split()[:2]) == (0, ["wrt", wrt.__version__])


def test_python_dash_m_is_the_same_command_line() -> None:
    told = subprocess.run([sys.executable, "-m", "wrt", "version"], capture_output=True, text=True, check=True).stdout
    assert told.split()[:2] == ["wrt", wrt.__version__]
    usage = subprocess.run([sys.executable, "-m", "wrt", "--help"], capture_output=True, text=True, check=True).stdout
    assert "Usage: wrt [OPTIONS]" in usage


def test_help_lists_every_command() -> None:
    code, output = call("--help")
    assert code == 0
    assert all(name in output for name in command_line.names())


def test_an_unknown_command_is_refused_by_name() -> None:
    code, output = call("nonsense")
    assert code == 2
    assert "No such command 'nonsense'" in output


def test_a_new_file_is_a_new_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def greet(name: str, times: int = 1) -> None:\n    print(f'hello {name}' * times)"
    (tmp_path / "greet.py").write_text(source)
    (tmp_path / "_private.py").write_text("")
    monkeypatch.setattr(command_line.commands, "__path__", [str(tmp_path)])
    assert command_line.names() == ["greet"]
    assert call("greet", "you", "--times", "2") == (0, "hello youhello you\n")
    monkeypatch.delitem(sys.modules, "wrt._cli.greet")


def test_a_command_does_not_import_the_others() -> None:
    program = (
        "import sys; sys.argv = ['wrt', 'version']\n"
        "from wrt._cli.app import main, names\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in names() if f'wrt._cli.{name}' in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert output.splitlines()[-1] == "['version']"
