"""Ordinary training scripts: `wrt why` has nothing certain to say."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from wrt._cli.app import app

pytest.importorskip("torch")
SCRIPTS = sorted((Path(__file__).parent / "healthy").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_healthy_script_is_left_alone(script):
    result = CliRunner().invoke(app, ["why", str(script)])
    assert result.exit_code == 0, result.output
