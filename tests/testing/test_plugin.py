"""The plugin, as pytest loads it: options reach the assertions, failures are short, nothing is imported for nothing."""

import os
import subprocess
import sys
from pathlib import Path

TEST = """
import torch
from wrt.testing import assert_causal

def test_looks_at_as_many_inputs_as_asked():
    assert "derivatives at 5 inputs" in assert_causal(lambda x: x.cumsum(1), torch.randn(1, 4, 2)).by

def test_fails():
    assert_causal(lambda x: x.flip(1), torch.randn(1, 4, 2))
"""


def run(folder: Path, *words: str) -> str:
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "wrt._testing.plugin", "-q", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout


def test_options_are_heard_and_failures_end_at_the_users_line(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    printed = run(tmp_path, "--wrt-points", "5")
    assert "1 failed, 1 passed" in printed
    assert "depends on input position" in printed
    assert "causal.py" not in printed


def test_no_framework_is_imported(tmp_path: Path) -> None:
    heavy = "{'torch', 'scipy', 'matplotlib'}"
    (tmp_path / "test_it.py").write_text(f"import sys\ndef test_it():\n    assert not {heavy} & sys.modules.keys()\n")
    assert "1 passed" in run(tmp_path)
