"""`wrt flow` and `wrt steer`, as typed in a terminal."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from wrt._cli.app import app

SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
x = torch.randn(3, 6)
loss = model(x).square().mean()
print("ran")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def run(*words: object):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_flow_prints_a_table_and_writes_a_picture(script: Path, tmp_path: Path) -> None:
    picture = tmp_path / "flow.png"
    result = run("flow", script, "--plot", picture)
    assert result.exit_code == 0, result.output
    assert "0.weight" in result.output
    assert "feature map" in result.output
    assert "nothing vanishes, explodes or is dead" in result.output
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_flow_as_json(script: Path) -> None:
    told = json.loads(run("flow", script, "--json").stdout)
    assert told["flow/2.bias/max"] > 0


def test_flow_asks_which_loss_is_meant(script: Path) -> None:
    result = run("flow", script, "--loss", "cost")
    assert result.exit_code == 1
    assert "the script left no variable cost" in result.output


def test_steer_moves_a_hidden_unit(script: Path, tmp_path: Path) -> None:
    saved = tmp_path / "new.npy"
    result = run("steer", script, "output[0, 1]", "--eps", 0.05, "--save", saved)
    assert result.exit_code == 0, result.output
    assert "asked to go up" in result.output
    assert np.load(saved).shape == (3, 6)


def test_steer_as_json_down_in_steps(script: Path) -> None:
    told = json.loads(run("steer", script, "output[0, 1]", "--to", "down", "--steps", 5, "--norm", 2, "--json").stdout)
    assert told["moved"]
    assert told["after"] < told["before"]


@pytest.mark.parametrize(("words", "says"), [(["--to", "left"], "--to left"), (["--norm", "3"], "--norm 3")])
def test_steer_refuses_what_nobody_can_read(script: Path, words: list[str], says: str) -> None:
    result = run("steer", script, "output[0, 1]", *words)
    assert result.exit_code == 2
    assert says in result.output
