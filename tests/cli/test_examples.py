"""Every example runs to its end: it checks its own answers."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {"in_pytorch": "torch", "in_tensorflow": "tensorflow", "in_jax": "jax", "cluster": "distributed"}


def run(name: str, *arguments: str) -> str:
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_is_a_row_for_each_example() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == set(NEEDS)
    assert all(f"`{name}.py`" in (EXAMPLES / "README.md").read_text() for name in names)


@pytest.mark.parametrize("name", ["in_pytorch", "in_tensorflow", "in_jax"])
def test_an_example_runs_to_its_end(name: str) -> None:
    printed = run(name)
    assert "d(y) / d(x)[2]" in printed
    assert "a block of it" in printed


def test_the_cluster_loses_a_worker_and_goes_on(tmp_path: Path) -> None:
    printed = run("cluster", "--size", "120", "--rows", "10", "--to", str(tmp_path))
    assert "killed worker process" in printed
    assert "asked again: 0 blocks computed, 12 were there" in printed
    assert "WRONG" not in printed
