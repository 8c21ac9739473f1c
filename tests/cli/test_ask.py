"""`wrt ask` runs a script as python would, and answers for the variables it leaves behind."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from wrt._cli import app as command_line

SCRIPT = """
import sys
import torch

w = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)
x = torch.tensor([1.0, -1.0], dtype=torch.float64, requires_grad=True)
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh()).double()
y = w @ x**2
loss = model(x).sum()
several = {"pair": [x, y], "empty": []}
n = torch.tensor([1, 2])
print("from the script", __name__, *sys.argv[1:])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def ask(script: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command_line.app, ["ask", str(script), *arguments])


def value(script: Path, query: str) -> np.ndarray:  # type: ignore[type-arg]
    result = ask(script, query, "--json")
    assert result.exit_code == 0, result.output
    return np.array(json.loads(result.stdout)["value"])


W, X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([1.0, -1.0])
JACOBIAN = W * 2 * X
SECOND = W[:, :, None] * 2 * np.eye(2)

ANSWERS = {
    "y[0] / x[1]": JACOBIAN[0, 1],
    "y / x": JACOBIAN,
    "d(y)[1:] / d(x)": JACOBIAN[1:],
    "y[::-1, None] / x[...]": JACOBIAN[::-1, None],
    "y[-1] / several.pair[0]": JACOBIAN[-1],
    "several.pair[1][0] / x": JACOBIAN[0],
    "y / x / x": SECOND,
    "y[2] / x[0] / x[0]": SECOND[2, 0, 0],
    "y / y": np.eye(3),
}


@pytest.mark.parametrize("query", ANSWERS)
def test_a_question_is_answered(script: Path, query: str) -> None:
    assert np.allclose(value(script, query), ANSWERS[query], rtol=1e-12, atol=0)


def test_the_answer_reads_well(script: Path) -> None:
    result = ask(script, "y[0] / x")
    assert result.output.splitlines() == [
        "from the script __main__",
        "y[0] / x   shape (2,), float64, 1 pass",
        "  [ 2. -4.]",
    ]


def test_a_model_is_answered_parameter_by_parameter(script: Path) -> None:
    lines = ask(script, "loss / model").output.splitlines()
    assert "loss / model.0.weight   shape (3, 2), float64, 1 pass" in lines
    assert "loss / model.0.bias   shape (3,), float64, 1 pass" in lines


def test_a_parameter_that_is_not_used_leaves_the_others_their_answers(tmp_path: Path) -> None:
    path = tmp_path / "part.py"
    path.write_text(
        "import torch\nmodel = torch.nn.ModuleDict({'used': torch.nn.Linear(1, 1), 'spare': torch.nn.Linear(1, 1)})\n"
        "loss = model['used'](torch.ones(1)).sum()\n"
    )
    result = ask(path, "loss / model")
    assert result.exit_code == 1
    assert "loss / model.used.bias   shape (1,), float32, 1 pass\n  [1.]" in result.output
    assert "loss / model.spare.bias   no gradient path from model.spare.bias to loss" in result.output
    told = {one["query"]: one for one in json.loads(ask(path, "loss / model", "--json").stdout)}
    assert told["loss / model.used.bias"]["value"] == [1.0]
    assert told["loss / model.spare.bias"]["error"].startswith("no gradient path from model.spare.bias to loss")


def test_explain_says_how(script: Path) -> None:
    output = ask(script, "y / x", "--explain").output
    assert "  question     3 x 2 entries, shape (3, 2), 48 bytes" in output.splitlines()
    assert "certificate" in output


def test_a_large_answer_shows_its_corners(tmp_path: Path) -> None:
    path = tmp_path / "large.py"
    path.write_text("import torch\nx = torch.ones(40, 40, requires_grad=True)\ny = x.sum()\n")
    output = ask(path, "y / x").output
    assert "..." in output
    assert "1600 entries; --json gives every one" in output
    assert value(path, "y / x").shape == (40, 40)


def test_json_has_words_for_what_json_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text("import torch\nx = torch.zeros(1, requires_grad=True)\ny = x.sqrt()\n")
    (number,) = json.loads(ask(path, "y[0] / x", "--json").stdout)["value"]
    assert number == "inf"


# ---- recorded runs ----

FILLED = """
import torch

def fill(x):
    h = torch.zeros(5, dtype=torch.float64)
    h[0] = x
    for k in range(1, 5):
        h[k] = 3 * h[k - 1]
    return h

x = torch.tensor(2.0, dtype=torch.float64)
y = fill(x)
for k in range(3):
    x = x * 2
z = x + y.sum()
"""

RECORDED = {
    "y[4] / y[1]": 27.0,  # within one tensor
    "y[4] / fill.h[0]": 81.0,  # within a function
    "z / h[3]": 4.0,
    "z / x": 1.0,
    "z / x#0": 8.0 + 121.0,  # what x was first
}


@pytest.mark.parametrize("query", RECORDED)
def test_a_recorded_run_answers_for_moments_and_inner_names(tmp_path: Path, query: str) -> None:
    path = tmp_path / "fill.py"
    path.write_text(FILLED)
    result = ask(path, query, "--record", "--json")
    assert json.loads(result.stdout)["value"] == RECORDED[query]


def test_a_moment_of_a_run_that_was_not_recorded_is_refused(script: Path) -> None:
    result = ask(script, "y / x#0")
    assert result.exit_code == 2
    assert "add --record" in result.stderr


def test_tensorflow_is_answered_in_a_recorded_run(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("tensorflow is not installed")
    path = tmp_path / "tape.py"
    path.write_text("import tensorflow as tf\nx = tf.constant([1.0, 2.0])\ny = x[0] * x[1]\n")
    python = [sys.executable, "-c", "from wrt._cli.app import main; main()"]
    result = subprocess.run([*python, "ask", str(path), "y / x", "--record", "--json"], capture_output=True, text=True)
    assert json.loads(result.stdout)["value"] == [2.0, 1.0]


# ---- the script runs as python runs it ----


def test_the_script_gets_its_arguments(script: Path) -> None:
    assert "from the script __main__ --epochs 3" in ask(script, "y[0] / x", "--", "--epochs", "3").output


def test_the_script_imports_its_neighbors_and_main_is_put_back(tmp_path: Path) -> None:
    (tmp_path / "neighbor_of_train.py").write_text("scale = 3.0")
    path = tmp_path / "train.py"
    path.write_text(
        "import sys, torch\nfrom neighbor_of_train import scale\nx = torch.ones(2, requires_grad=True)\n"
        "y = x * scale\nassert sys.modules['__main__'].y is y\nsys.exit(0)\n"
    )
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    try:
        assert value(path, "y[0] / x[0]") == 3.0
        assert (sys.argv, sys.path, sys.modules["__main__"]) == before
    finally:
        sys.modules.pop("neighbor_of_train", None)


# ---- refusals ----

REFUSED = {
    "y / z": (1, "the script left no variable z", "there is loss, model, n, several, w, x, y"),
    "y / los": (1, "the script left no variable los", "did you mean loss?"),
    "y / model.0.wieght": (1, "model.0 has no wieght", "did you mean weight?"),
    "y / several.pair[5]": (2, "several.pair has no item 5", "it is a list of 2"),
    "y / several.empty[0]": (2, "several.empty has no item 0", "it is empty"),
    "y[7] / x": (1, "index 7 is out of bounds for axis 0 with size 3", "valid indices"),
    "n / x": (1, "d() of a tensor of int64", "whole numbers"),
    "y / w": (1, "w does not require grad", "add --record: in a recorded run nothing needs to require grad"),
    "loss / y": (1, "no gradient path from y to loss", "wrt why train.py 'loss / y' says where the path ends"),
    "y / model.0.bias": (1, "no gradient path from model.0.bias to y", "says where the path ends"),
    "loss / model / x": (2, "loss / model / x goes on after a tree", "model is not one tensor"),
    "y[0 / x": (2, "the index is not closed", "y[0 → / x"),
}


@pytest.mark.parametrize("query", REFUSED)
def test_a_question_is_refused_in_words(script: Path, query: str) -> None:
    code, *words = REFUSED[query]
    result = ask(script, query)
    assert result.exit_code == code
    assert all(one in result.stderr for one in words)
    assert "Traceback" not in result.output
    assert len(result.stderr.strip().splitlines()) == 3


def test_a_wrong_question_is_refused_before_the_script_runs(script: Path) -> None:
    assert "from the script" not in ask(script, "y[0").output


FAILING = {
    "raises": ("x = 1\nraise ValueError('no data')", "raised ValueError: no data", "train.py:2  raise ValueError"),
    "exits": ("import sys\nsys.exit(3)", "train.py ended with 3", "sys.exit()"),
    "is not Python": ("x = (", "train.py is not Python", "train.py:1"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_failing_script_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    source, *words = FAILING[name]
    path = tmp_path / "train.py"
    path.write_text(source)
    result = ask(path, "y / x")
    assert result.exit_code == 1
    assert all(one in result.stderr for one in words)


@pytest.mark.parametrize("options", [(), ("--record",)])
def test_a_missing_script_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    result = ask(tmp_path / "nowhere.py", "y / x", *options)
    assert result.exit_code == 1
    assert "nowhere.py cannot be read" in result.stderr
