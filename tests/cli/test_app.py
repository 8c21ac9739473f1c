"""The command line: every command is listed and called by its name, and the demo costs nothing until it is asked for."""

import subprocess
import sys

from typer.testing import CliRunner

import wrt
from wrt._cli import app as command_line

COMMANDS = ("ask", "demo", "explain-cause", "flow", "show", "steer", "version", "why")


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
    assert all(name in output for name in COMMANDS)


def test_every_command_has_help_of_its_own() -> None:
    for name in COMMANDS:
        code, output = call(name, "--help")
        assert (code, f"{name} [OPTIONS]" in output) == (0, True)


def test_an_unknown_command_is_refused_by_name() -> None:
    code, output = call("nonsense")
    assert code == 2
    assert "No such command 'nonsense'" in output


def test_a_command_imports_no_framework_and_not_the_demo() -> None:
    program = (
        "import sys; sys.argv = ['wrt', 'version']\n"
        "from wrt._cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('wrt._cli.demo', 'torch', 'tensorflow', 'jax') if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert output.splitlines()[-1] == "[]"
