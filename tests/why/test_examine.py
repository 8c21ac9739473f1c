"""Every mistake is named with its line, and healthy programs are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.why._programs import Program, cases, hold, programs
from wrt._cli.app import app

FRAMEWORKS = ("torch", "jax", "tensorflow")
SCRIPTS = sorted((Path(__file__).parent / "healthy").glob("*.py"))


def table(*, healthy: bool) -> list:
    rows = [(name, p) for name in FRAMEWORKS for p in programs(name) if (p.cause == "none") == healthy]
    return [pytest.param(name, p, id=f"{name}-{p}") for name, p in rows]


@pytest.mark.parametrize(("framework", "program"), table(healthy=False))
def test_the_cause_and_its_line_are_named(framework: str, program: Program) -> None:
    hold(framework, program)


@pytest.mark.parametrize(("framework", "program"), table(healthy=True))
def test_a_healthy_program_is_left_alone(framework: str, program: Program) -> None:
    hold(framework, program)


@pytest.mark.parametrize("case", cases("torch"), ids=str)
def test_what_people_asked_about_is_named(case: Program) -> None:
    hold("torch", case)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_healthy_script_is_left_alone(script: Path) -> None:
    result = CliRunner().invoke(app, ["why", str(script)])
    assert result.exit_code == 0, result.output
